# One image, with what its service needs: EXTRAS=flower for web and Flower (no torch), EXTRAS=worker for GPUs.
FROM python:3.12-slim

ARG EXTRAS=flower
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 CHATSITE_VAR=/srv/tokenline/var

RUN useradd --create-home --uid 1000 tokenline \
    && install -d -o tokenline -g tokenline /srv/tokenline/var /home/tokenline/.cache
WORKDIR /srv/tokenline
COPY pyproject.toml README.md LICENSE manage.py ./
COPY chatsite chatsite
COPY generation generation
RUN pip install --editable ".[${EXTRAS}]"

USER tokenline
RUN SECRET_KEY=for-this-step-only python manage.py collectstatic --noinput

EXPOSE 8000
# In exec form, so that SIGTERM reaches the server itself.
CMD ["daphne", "-b", "0.0.0.0", "-p", "8000", "--ping-interval", "20", "--ping-timeout", "30", \
     "--websocket_timeout", "-1", "--access-log", "/dev/null", "chatsite.asgi:application"]
