"""Local mode: `manage.py up` starts Redis, web, worker and Flower on this machine and keeps them running.

It prepares the environment before Django loads its settings, so nothing here imports them at import time.
"""
