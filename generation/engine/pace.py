"""How many prompt tokens a step may compute, so that those who read hardly notice who joins. Knows only durations.

A chunk of a prompt lengthens the step for everybody. While more people read than wait, a chunk is as long as keeps
the step within a share of a step without prompts, both as measured here. (Sarathi-Serve, Agrawal et al. 2024, bounds
a step's tokens alike.) When as many wait, they gain more by long chunks than the readers lose, since each step reads
all weights: then a step takes as much as it computes in half a second, which is what whoever comes next waits for it.
"""

# What a chunk may add to a step, as a share of it; some is left for what varies.
_SHARE = 0.3

# Fewer tokens cost about as much: the weights are read once for all of them.
_LEAST_TOKENS = 16

# Of a step that is mostly prompts.
_LONGEST_SECONDS = 0.5

# What the newest step counts in the running means.
_WEIGHT = 0.25


class Pace:
    """``chunk`` tokens at the utmost while more read than wait, else ``most``, but never longer than it should be."""

    def __init__(self, chunk: int, most: int) -> None:
        self._chunk = chunk
        self._most = most
        self._decode_seconds: float | None = None  # of a step without prompts
        self._token_seconds: float | None = None  # that one prompt token adds
        self._prompt_seconds: float | None = None  # of one prompt token where a step is mostly prompts

    def note(self, num_decoding: int, num_prompt_tokens: int, seconds: float) -> None:
        """A step of so many decoding rows and prompt tokens took ``seconds``."""
        if num_prompt_tokens > num_decoding:
            self._prompt_seconds = _mean(self._prompt_seconds, seconds / num_prompt_tokens)
        if not num_prompt_tokens:
            self._decode_seconds = _mean(self._decode_seconds, seconds)
        elif self._decode_seconds is None:
            self._token_seconds = _mean(self._token_seconds, seconds / num_prompt_tokens)  # too much, but safe
        elif num_decoding:
            added = max(0.0, seconds - self._decode_seconds)
            self._token_seconds = _mean(self._token_seconds, added / num_prompt_tokens)

    def budget(self, num_decoding: int, num_waiting: int) -> int:
        """Prompt tokens of the next step."""
        if num_waiting >= num_decoding and self._prompt_seconds:
            return max(self._chunk, min(self._most, int(_LONGEST_SECONDS / self._prompt_seconds)))
        if num_waiting >= num_decoding or self._decode_seconds is None or not self._token_seconds:
            return self._chunk
        return min(self._chunk, max(_LEAST_TOKENS, int(_SHARE * self._decode_seconds / self._token_seconds)))


def _mean(before: float | None, value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)
