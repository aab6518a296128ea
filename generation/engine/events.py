"""What an engine says about its sequences, one value per happening. No torch, Django or Celery."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum


class EventType(StrEnum):
    """``started → prefill* → token* → end``; every sequence ends exactly once."""

    STARTED = "started"
    PREFILL = "prefill"
    TOKEN = "token"
    END = "end"


class FinishReason(StrEnum):
    STOP = "stop"  # the model ended its turn
    STOP_STRING = "stop_string"
    LENGTH = "length"  # max_new_tokens, or the context is full
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(slots=True, frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(slots=True, frozen=True)
class Timings:
    """Seconds: waiting for a slot; from there to the first token; from submit to the first token; in all."""

    queue: float
    prefill: float
    first_token: float
    total: float


@dataclass(slots=True, frozen=True)
class Event:
    """One happening of one sequence; each field is set where it applies.

    A ``token`` event carries the sampled ids and the text they release, which may be empty. ``prefill``
    carries ``done`` of ``total`` prompt tokens, for prompts that take more than one step.
    """

    type: EventType
    identifier: Hashable
    ids: tuple[int, ...] = ()
    text: str = ""
    done: int = 0
    total: int = 0
    reason: FinishReason | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    error: BaseException | None = None
