"""The options of `manage.py up`. They are needed twice: before Django is set up, and by its command."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, default=8000, help="port of the site; 0 takes a free one (default: 8000)")
    parser.add_argument(
        "--var",
        type=Path,
        default=None,
        help="folder for the database, Redis, secrets (default: CHATSITE_VAR, else var)",
    )
    parser.add_argument(
        "--concurrency",
        type=_count,
        default=None,
        metavar="N",
        help="prompts that are answered at the same time (default: what the last `manage.py benchmark` on this machine"
        " recommended, else 4)",
    )
    parser.add_argument("--no-flower", action="store_true", help="don't start Flower")


def _port(text: str) -> int:
    value = _whole(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return value


def _count(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a whole number") from None
