"""What an engine is told at its start, and what it tells of itself. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """``slots`` sequences at a time, ``context`` tokens each.

    A step computes ``prefill_chunk`` prompt tokens at the utmost, 0: all. None: 64, and while as many wait as are
    answered up to 512, as many as take half a second.

    ``cache_tokens`` are the tokens of all slots together: those that running sequences may come to and those kept of
    earlier ones. None: every slot may be full.
    """

    slots: int = 8
    context: int = 4096
    prefill_chunk: int | None = None
    cache_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.slots < 1 or self.context < 2 or (self.prefill_chunk or 0) < 0:
            raise ValueError(f"slots must be at least 1, context 2 and prefill_chunk 0: {self}")
        if self.cache_tokens is not None and self.cache_tokens < 2:
            raise ValueError(f"cache_tokens must be at least 2: {self}")


@dataclass(frozen=True, slots=True)
class EngineStats:
    slots: int
    running: int
    waiting: int
    steps: int
    last_step_at: float  # time.monotonic()
    idle: bool
    alive: bool  # the thread runs
    device: str  # where the model computes, and in what; empty for one without weights
    dtype: str
