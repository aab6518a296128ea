"""The next id of every sequence of a step, from their logits. Knows tensors and parameters, no text.

Randomness is counted, not kept: the draw depends on the sequence's seed and on the position alone, so that
neither the batch nor a continuation on another machine changes it.

Letters: B sequences · V vocabulary.
"""

import torch

from generation.engine.sequence import Sequence

_MASK = 2**64 - 1


def draw(seed: int, position: int) -> float:
    """A uniform number in [0, 1) for one position of one reply: two rounds of SplitMix64 (Steele, Lea, Flood 2014)."""
    return (_mix(_mix(seed & _MASK) + position) >> 11) / 2**53


def _mix(number: int) -> int:
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


class NoFiniteLogits(ArithmeticError):
    """The model computed NaN or only infinities for this sequence."""


def sample(logits: torch.Tensor, sequences: list[Sequence]) -> list[int | Exception]:
    """One id for each row of ``logits`` (B, V); an exception where a row has no usable number."""
    logits = logits.float()
    rows = [_penalised(row, sequence) for row, sequence in zip(logits, sequences, strict=True)]
    logits = torch.stack(rows)
    usable = torch.isfinite(logits.amax(-1))  # (B,); NaN wins every maximum
    ids = logits.argmax(-1)  # (B,)
    random = [index for index, sequence in enumerate(sequences) if sequence.params.temperature > 0]
    if random:
        index = torch.tensor(random, device=logits.device)
        ids[index] = _draw_ids(logits[index], [sequences[i] for i in random])
    # The step's only wait for the device.
    return [
        token_id if ok else NoFiniteLogits("the model computed no finite logits")
        for token_id, ok in torch.stack([ids, usable.long()], dim=-1).tolist()
    ]


def _penalised(row: torch.Tensor, sequence: Sequence) -> torch.Tensor:
    """One row (V,) with its sequence's penalties, and without ends where it must still go on."""
    params = sequence.params
    may_end = sequence.num_generated >= params.min_new_tokens
    if params.repetition_penalty == 1 and not params.presence_penalty and not params.frequency_penalty and may_end:
        return row
    row = row.clone()
    if params.repetition_penalty != 1:  # Keskar et al. 2019: prompt and reply
        seen = torch.tensor(sequence.ids, device=row.device)
        scores = row[seen]
        row[seen] = torch.where(scores < 0, scores * params.repetition_penalty, scores / params.repetition_penalty)
    if sequence.num_generated and (params.presence_penalty or params.frequency_penalty):  # the reply alone
        generated = torch.tensor(sequence.generated_ids, device=row.device)
        counts = torch.zeros_like(row).scatter_add_(0, generated, torch.ones_like(generated, dtype=row.dtype))
        row -= params.presence_penalty * (counts > 0) + params.frequency_penalty * counts
    if not may_end:
        ends = [token_id for token_id in sequence.eos_ids if token_id < row.shape[0]]
        row[torch.tensor(ends, dtype=torch.long, device=row.device)] = float("-inf")
    return row


def _draw_ids(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """Draw one id per row: temperature, then top_k, top_p and min_p, in the order of transformers."""
    every = [sequence.params for sequence in sequences]

    def column(values: list[float]) -> torch.Tensor:  # (B, 1)
        return torch.tensor(values, device=logits.device, dtype=torch.float32).unsqueeze(-1)

    vocab_size = logits.shape[-1]
    logits = logits / column([params.temperature for params in every])
    top_k = [min(params.top_k or vocab_size, vocab_size) for params in every]
    if min(top_k) < vocab_size:
        largest = logits.topk(max(k for k in top_k if k < vocab_size)).values
        last = torch.tensor([min(k, largest.shape[-1]) - 1 for k in top_k], device=logits.device).unsqueeze(-1)
        floor = largest.gather(-1, last)
        unlimited = torch.tensor([k == vocab_size for k in top_k], device=logits.device).unsqueeze(-1)
        logits = logits.masked_fill((logits < floor) & ~unlimited, float("-inf"))
    if any(params.top_p < 1 for params in every):
        ordered, order = logits.sort(-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
        before[:, 0] = 0  # the likeliest id always stays
        top_p = column([params.top_p for params in every])
        dropped = (before >= top_p) & (top_p < 1)
        logits = logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), float("-inf"))
    probabilities = logits.softmax(-1)
    if any(params.min_p > 0 for params in every):
        floor = column([params.min_p for params in every]) * probabilities.amax(-1, keepdim=True)
        probabilities = probabilities.masked_fill(probabilities < floor, 0)
    cumulative = probabilities.double().cumsum(-1)  # (B, V)
    points = torch.tensor(
        [draw(sequence.seed, sequence.num_generated) for sequence in sequences],
        device=logits.device,
        dtype=cumulative.dtype,
    ).unsqueeze(-1)
    total = cumulative[:, -1:].contiguous()
    # The first id whose cumulated probability exceeds the point; rounding must not carry it past the last.
    ids = torch.searchsorted(cumulative, points * total, right=True).squeeze(-1)
    last_possible = torch.searchsorted(cumulative, total).squeeze(-1)
    return torch.minimum(ids, last_possible)
