"""What parameters do to single logits: biases, penalties, and ends that would come too early.

Only the ids concerned are touched. They are kept per sequence, a column each, and followed as the reply grows, so
that a step costs neither a pass over the vocabulary nor one over the text. Knows no draws.

Letters: B sequences · P of them with such parameters · L columns of the longest · V vocabulary.
"""

from typing import Any

import numpy
import torch

from generation.engine.sequence import Sequence

_COUNT, _BIAS, _SEEN, _END = range(4)


def upload(numbers: "numpy.ndarray[Any, Any]", device: torch.device) -> torch.Tensor:
    """A copy on the device, without waiting for what it does."""
    tensor = torch.from_numpy(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Penalties:
    """Of one model's sequences. What is kept follows from a sequence's ids, and goes once a step is without it."""

    def __init__(self) -> None:
        self._kept: dict[Sequence, _Columns] = {}

    def apply(self, logits: torch.Tensor, sequences: list[Sequence]) -> None:
        """Change ``logits`` (B, V), in float32, as the parameters say."""
        before, self._kept = self._kept, {}
        rows, columns = [], []
        for row, sequence in enumerate(sequences):
            if not _concerns(sequence):
                continue
            kept = before.get(sequence) or _Columns(sequence, logits.shape[-1])
            kept.follow(sequence)
            self._kept[sequence] = kept
            if kept.size:
                rows.append(row)
                columns.append(kept)
        if not rows:
            return
        length = max(kept.size for kept in columns)
        ids = numpy.empty((len(rows), length), numpy.int64)
        numbers = numpy.empty((4, len(rows), length), numpy.float32)
        for index, kept in enumerate(columns):
            size = kept.size
            ids[index, :size], numbers[:, index, :size] = kept.ids[:size], kept.numbers[:, :size]
            # The first column once more, and so the same result at the same place.
            ids[index, size:], numbers[:, index, size:] = kept.ids[0], kept.numbers[:, :1]
        settings = numpy.array([_settings(sequences[row]) for row in rows], numpy.float32)
        device = logits.device
        _change(logits, *(upload(each, device) for each in (numpy.array(rows)[:, None], ids, numbers, settings)))


def _concerns(sequence: Sequence) -> bool:
    params = sequence.params
    return bool(
        params.repetition_penalty != 1
        or params.presence_penalty
        or params.frequency_penalty
        or params.logit_bias
        or sequence.num_generated < params.min_new_tokens
    )


def _settings(sequence: Sequence) -> tuple[float, ...]:
    params = sequence.params
    is_early = sequence.num_generated < params.min_new_tokens
    return params.repetition_penalty, params.presence_penalty, params.frequency_penalty, is_early


def _change(
    logits: torch.Tensor,  # (B, V)
    rows: torch.Tensor,  # (P, 1)
    ids: torch.Tensor,  # (P, L)
    numbers: torch.Tensor,  # (4, P, L)
    settings: torch.Tensor,  # (P, 4)
) -> None:
    repetition, presence, frequency, is_early = settings.split(1, dim=-1)
    count, bias, seen, end = numbers
    scores = logits[rows, ids] + bias  # (P, L)
    # Keskar et al. 2019: prompt and reply.
    scores = torch.where(seen > 0, torch.where(scores < 0, scores * repetition, scores / repetition), scores)
    scores = scores - presence * (count > 0) - frequency * count
    scores = scores.masked_fill((end > 0) & (is_early > 0), float("-inf"))
    logits[rows, ids] = scores


class _Columns:
    """The ids of one sequence that its parameters concern. ``numbers`` (4, …): how often the reply has it, its
    bias, whether the repetition penalty has seen it, whether it is an end.
    """

    def __init__(self, sequence: Sequence, vocab_size: int) -> None:
        params = sequence.params
        self.size = 0
        self._column: dict[int, int] = {}
        self._penalises_repetition = params.repetition_penalty != 1
        self._penalises_reply = bool(params.presence_penalty or params.frequency_penalty)
        counts_prompt = self._penalises_repetition
        self._num_followed = 0 if counts_prompt else sequence.num_prompt
        ends = {token_id for token_id in sequence.eos_ids if token_id < vocab_size} if params.min_new_tokens else set()
        most = len(params.logit_bias) + len(ends) + sequence.num_prompt * counts_prompt
        most += max(sequence.max_new_tokens, sequence.num_generated)
        self.ids = numpy.empty(most, numpy.int64)
        self.numbers = numpy.zeros((4, most), numpy.float32)
        for token_id, bias in params.logit_bias.items():
            self.numbers[_BIAS, self._of(token_id)] = bias
        for token_id in ends:
            self.numbers[_END, self._of(token_id)] = 1

    def follow(self, sequence: Sequence) -> None:
        """Take in the ids that came since the last time."""
        if self._penalises_repetition or self._penalises_reply:
            num_prompt = sequence.num_prompt
            for index in range(self._num_followed, len(sequence.ids)):
                column = self._of(sequence.ids[index])
                self.numbers[_SEEN, column] = 1
                self.numbers[_COUNT, column] += index >= num_prompt
            self._num_followed = len(sequence.ids)

    def _of(self, token_id: int) -> int:
        column = self._column.setdefault(token_id, self.size)
        if column == self.size:
            self.ids[column] = token_id
            self.size += 1
        return column
