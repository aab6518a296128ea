"""`manage.py chat "text"`: one prompt through the whole pipeline, streamed to the terminal."""

import asyncio
import signal
from contextlib import aclosing
from typing import Any

import redis
from django.core.management.base import BaseCommand, CommandError, CommandParser

from chatsite.local.first_start import person
from generation import delivery, queue
from generation.models import Job

USER = "cli"
INTERRUPTED = 130
CANCEL_SECONDS = 0.2


class Command(BaseCommand):
    help = "Send one prompt through queue and worker and stream the reply to the terminal."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("text", help="the prompt")
        parser.add_argument("--model", help="the model's name (default: the site's default)")
        parser.add_argument("--max-new-tokens", type=int, help="most tokens of the reply")
        parser.add_argument("--temperature", type=float, help="0 takes the likeliest token each time")
        parser.add_argument("--seed", type=int, help="the same seed draws the same random numbers")

    def handle(self, *args: Any, **chosen: Any) -> None:
        names = ("max_new_tokens", "temperature", "seed")
        params = {name: chosen[name] for name in names if chosen[name] is not None}
        messages = [{"role": "user", "content": chosen["text"]}]
        try:
            job = queue.submit(person(USER), messages, model=chosen["model"], params=params)
        except queue.Refused as refusal:
            raise CommandError(f"{refusal.code}: {refusal.message}") from None
        has_ended = False
        try:
            end = asyncio.run(self._follow(job))
            has_ended = end is not None
        except redis.RedisError as error:
            raise CommandError(
                f"Redis doesn't answer; is the site running? `manage.py up` starts it. ({error})"
            ) from None
        finally:
            # Also after a broken pipe: nobody reads the rest.
            if not has_ended:
                queue.cancel(job)
        if end is None:
            raise CommandError("cancelled", returncode=INTERRUPTED)
        self._conclude(end)

    async def _follow(self, job: Job) -> dict[str, Any] | None:
        """The end frame, or None after Ctrl-C."""
        interrupted = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
        reading = asyncio.ensure_future(self._read(job))
        waiting = asyncio.ensure_future(interrupted.wait())
        await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        while not reading.done():
            # Before Python 3.12 `wait_for`, which redis-py uses, can swallow a cancellation: ask until it is heard.
            reading.cancel()
            await asyncio.wait({reading}, timeout=CANCEL_SECONDS)
        return None if reading.cancelled() else reading.result()

    async def _read(self, job: Job) -> dict[str, Any] | None:
        shown = ""
        async with aclosing(delivery.follow(job)) as frames:
            async for frame in frames:
                match frame["type"]:
                    case "queued":
                        self._note(_place(frame))
                    case "started":
                        self._note(f"started after {frame['waited_seconds']:.1f} s")
                    case "prefill":
                        self._note(f"reading the prompt: {frame['done']} of {frame['total']} tokens")
                    case "token":
                        shown += frame["text"]
                        self._text(frame["text"])
                    case "snapshot":
                        # Text can't be taken back from a terminal: what is new is added, else all is shown again.
                        new = frame["text"]
                        self._text(new[len(shown) :] if new.startswith(shown) else "\n" + new)
                        shown = new
                    case "finished" | "failed" | "cancelled" | "expired":
                        self._text("\n")
                        return dict(frame)
        return None

    def _conclude(self, end: dict[str, Any]) -> None:
        kind = end["type"]
        if kind == "failed":
            raise CommandError(f"{end['code']}: {end['message']}")
        if kind != "finished":
            raise CommandError({"cancelled": "cancelled", "expired": "waited too long"}[kind])
        usage, timings = end["usage"], end["timings"]
        num_tokens = usage["completion_tokens"]
        seconds = (timings.get("total") or 0) - (timings.get("first_token") or 0)
        timed = timings.get("tokens", num_tokens)  # fewer than all if another worker began the reply
        speed = f", {(timed - 1) / seconds:.1f} tokens/s" if seconds > 0 and timed > 1 else ""
        self._note(f"{usage['prompt_tokens']} + {num_tokens} tokens{speed} ({end['reason']})")

    def _text(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()

    def _note(self, text: str) -> None:
        self.stderr.write(text, style_func=lambda line: line)


def _place(frame: dict[str, Any]) -> str:
    position = frame["position"]
    endings = {1: "st", 2: "nd", 3: "rd"} if position % 100 not in (11, 12, 13) else {}
    ordinal = f"{position}{endings.get(position % 10, 'th')}" if position > 1 else "next"
    place = f"{ordinal} in line of {frame['queue_size']}"
    return place + (", the queue is paused" if frame.get("paused") else "")
