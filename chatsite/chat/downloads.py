"""A response that is written while it is sent, in pieces of some size, whatever server sends it."""

from collections.abc import AsyncIterator, Iterable, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header

PIECE_CHARS = 64_000


def download(request: HttpRequest, name: str, content_type: str, texts: Iterable[str]) -> StreamingHttpResponse:
    pieces = _pieces(texts)
    return StreamingHttpResponse(
        # An ASGI server would first collect what an ordinary iterator gives.
        _awaited(pieces) if isinstance(request, ASGIRequest) else pieces,
        content_type=content_type,
        headers={"Content-Disposition": content_disposition_header(True, name) or "attachment"},
    )


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    kept: list[str] = []
    size = 0
    for text in texts:
        kept.append(text)
        size += len(text)
        if size >= PIECE_CHARS:
            yield "".join(kept).encode()
            kept, size = [], 0
    yield "".join(kept).encode()


async def _awaited(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    def following() -> bytes | None:
        return next(pieces, None)

    while (piece := await sync_to_async(following)()) is not None:
        yield piece
