"""The few errors that people outside the engine handle. Each one's text may be shown to people."""


class PromptError(ValueError):
    """The messages or their ids cannot be a prompt for this model."""


class PromptTooLong(PromptError):
    """The prompt leaves no room for a reply in this model's context."""

    def __init__(self, num_tokens: int, limit: int) -> None:
        super().__init__(f"prompt has {num_tokens:,} tokens; this model takes {limit:,}")
        self.num_tokens = num_tokens
        self.limit = limit


class EngineClosed(RuntimeError):
    """The engine was closed before, or while, it worked on this sequence."""

    def __init__(self) -> None:
        super().__init__("the engine is closed")


class DeviceLost(RuntimeError):
    """The model's device computes nothing any more: no later step can succeed in this process."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the device computes nothing any more: {error}")


class ModelRefused(ValueError):
    """The engine cannot run this model correctly, and therefore does not run it at all."""
