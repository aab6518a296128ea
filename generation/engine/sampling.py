"""The next id of every sequence of a step, from their logits. Knows tensors and parameters, no text.

Randomness is counted, not kept: the draw depends on the sequence's seed and on the position alone, so that
neither the batch nor a continuation on another machine changes it.

Letters: B sequences · R of them drawn at random · T of those cut by top_k or top_p · K largest logits · V vocabulary.
"""

import numpy
import torch

from generation.engine.penalties import Penalties, upload
from generation.engine.sequence import Sequence

_MASK = 2**64 - 1

# On a CPU selecting so many and sorting them is much cheaper than sorting a vocabulary, and mostly enough.
_MOST_CANDIDATES = 4096


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


class Sampler:
    """Of one model. Used by the engine's thread alone."""

    def __init__(self) -> None:
        self._penalties = Penalties()

    def sample(self, logits: torch.Tensor, sequences: list[Sequence]) -> list[int | Exception]:
        """One id for each row of ``logits`` (B, V); an exception where a row has no usable number."""
        logits = self._penalties.apply(logits.float(), sequences)
        usable = torch.isfinite(logits.amax(-1))  # (B,); NaN wins every maximum
        ids = torch.empty(len(sequences), dtype=torch.long, device=logits.device)
        greedy = [row for row, sequence in enumerate(sequences) if sequence.params.temperature == 0]
        random = [row for row, sequence in enumerate(sequences) if sequence.params.temperature > 0]
        if greedy:
            index, chosen = _pick(logits, greedy)
            ids[index] = chosen.argmax(-1)
        if random:
            index, chosen = _pick(logits, random)
            ids[index] = _draw_ids(chosen, [sequences[row] for row in random])
        # The step's only wait for the device.
        return [
            token_id if ok else NoFiniteLogits("the model computed no finite logits")
            for token_id, ok in torch.stack([ids, usable.long()], dim=-1).tolist()
        ]


def _pick(tensor: torch.Tensor, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Some rows' index on the device, and the rows; all of them without a copy."""
    index = upload(numpy.array(rows), tensor.device)
    return index, tensor if len(rows) == len(tensor) else tensor[index]


def _draw_ids(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """Draw one id per row of (R, V): temperature, then top_k, top_p and min_p, in the order of transformers.

    Each of the three keeps what is at least as likely as some id, so that of equally likely ids all stay or none.
    """
    every = [sequence.params for sequence in sequences]
    settings = [
        (params.temperature, params.top_k, params.top_p, params.min_p, draw(sequence.seed, sequence.num_generated))
        for params, sequence in zip(every, sequences, strict=True)
    ]
    uploaded = upload(numpy.array(settings, numpy.float64), logits.device)  # (R, 5)
    temperature, top_k, top_p, min_p, points = uploaded.split(1, dim=-1)
    # Relative to the likeliest id: nothing overflows, whatever the temperature.
    logits = (logits - logits.amax(-1, keepdim=True)).div_(temperature.float())
    weights = logits.exp()
    floor = min_p.log().float()  # (R, 1), of logits; -inf keeps all
    cut = [row for row, params in enumerate(every) if params.top_k or params.top_p < 1]
    if cut:
        index, chosen = _pick(logits, cut)
        total = weights.sum(-1, keepdim=True)[index].double()
        floor[index] = torch.maximum(floor[index], _floors(chosen, total, top_k[index], top_p[index]))
    if cut or any(params.min_p for params in every):
        weights *= torch.ge(logits, floor, out=torch.empty_like(weights))
    cumulative = weights.double().cumsum_(-1)  # (R, V)
    total = cumulative[:, -1:].contiguous()
    # The first id whose cumulated weight exceeds the point; rounding must not carry it past the last.
    ids = torch.searchsorted(cumulative, points * total, right=True).squeeze(-1)
    last_possible = torch.searchsorted(cumulative, total).squeeze(-1)
    return torch.minimum(ids, last_possible)


def _floors(logits: torch.Tensor, total: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The least logit that stays in each row, (T, 1). ``total`` (T, 1) is the weight of the whole row."""
    vocab_size = logits.shape[-1]
    if logits.device.type != "cpu" or vocab_size <= _MOST_CANDIDATES:
        return _floors_among(logits.sort(-1, descending=True).values, total, top_k, top_p)
    values = logits.numpy()
    largest = _descending(numpy.partition(values, vocab_size - _MOST_CANDIDATES, -1)[:, -_MOST_CANDIDATES:])
    floors = _floors_among(largest, total, top_k, top_p)
    # Where even the last candidate stays, others that were not selected may stay too.
    flat = (floors <= largest[:, -1:]).squeeze(-1).nonzero().squeeze(-1)
    if len(flat):
        ordered = _descending(values[flat.numpy()])
        floors[flat] = _floors_among(ordered, total[flat], top_k[flat], top_p[flat])
    return floors


def _descending(values: "numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float32]]") -> torch.Tensor:
    return torch.from_numpy(numpy.sort(values, -1)[:, ::-1].copy())


def _floors_among(largest: torch.Tensor, total: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The same from each row's ``largest`` logits (T, K), in descending order."""
    last = top_k.long().clamp(1, largest.shape[-1]) - 1
    by_k = torch.where(top_k > 0, largest.gather(-1, last), float("-inf"))
    weights = largest.double().exp() * (largest >= by_k)
    total = torch.where(top_k > 0, weights.sum(-1, keepdim=True), total)
    before = weights.cumsum(-1) - weights
    num_kept = (before < top_p * total).sum(-1, keepdim=True)
    by_p = largest.gather(-1, num_kept.clamp(min=1) - 1)
    return torch.where(top_p < 1, torch.maximum(by_p, by_k), by_k)
