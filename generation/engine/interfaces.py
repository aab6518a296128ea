"""What the engine asks of a model and of its text side. Types only: implementations may know torch, this may not."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from generation.engine.detokenizer import TokenStream
from generation.engine.scheduler import Plan

Log = Callable[[str], None]


@runtime_checkable
class TextCodec(Protocol):
    """Messages to ids and ids to text. Every method may be called from any thread."""

    eos_ids: frozenset[int]

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Prompt ids; raises PromptError."""

    def stream(self, prompt_ids: Sequence[int]) -> TokenStream: ...


@runtime_checkable
class Runner(Protocol):
    """Carries out plans. Only the engine's thread calls ``run``."""

    context: int  # tokens that one slot holds
    vocab_size: int | None  # ids must be below; None: any id
    eos_ids: frozenset[int]
    keeps_prefixes: bool  # what a slot holds serves later sequences that begin with the same ids
    device: str  # where it computes, and in what; empty for one without weights
    dtype: str
    interval: float  # least seconds between two tokens of one sequence; 0 for real models

    def run(self, plan: Plan) -> list[int | Exception]:
        """One result for each segment of the plan that samples, in the plan's order.

        An exception in the list concerns that sequence alone; a raised one fails all sequences of the plan.
        """

    def check(self) -> None:
        """Ask the device for something small, after a failed step; raises if it answers nothing any more."""
