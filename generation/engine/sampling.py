"""The next id of every sequence of a step, from their logits. Knows tensors and parameters, no text.

Randomness is counted, not kept: the draw depends on the sequence's seed and on the position alone, so that
neither the batch nor a continuation on another machine changes it.

Letters: B sequences · T of them cut by top_k or top_p · K largest logits · V vocabulary · N blocks of it.
"""

import numpy
import torch

from generation.engine.penalties import Penalties, upload
from generation.engine.sequence import Sequence

_MASK = 2**64 - 1

# On a CPU selecting so many and sorting them is much cheaper than sorting a vocabulary, and mostly enough.
_MOST_CANDIDATES = 2048

_BLOCK = 256


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
    """Of one model. Used by the engine's thread alone. It works in memory of its own: fresh pages cost more than
    what is computed in them.
    """

    def __init__(self) -> None:
        self._penalties = Penalties()
        self._scratch = torch.empty(0)

    def sample(self, logits: torch.Tensor, sequences: list[Sequence]) -> list[int | Exception]:
        """One id for each row of ``logits`` (B, V); an exception where a row has no usable number."""
        scores, weights, spare = self._room(logits)
        scores.copy_(logits)
        self._penalties.apply(scores, sequences)
        largest = scores.amax(-1, keepdim=True)  # (B, 1); NaN wins every maximum
        if all(sequence.params.temperature == 0 for sequence in sequences):
            ids = scores.argmax(-1)
        else:
            # Relative to the likeliest id: nothing overflows, whatever the temperature.
            ids = _draw_ids(scores.sub_(largest), weights, spare, sequences)
        # The step's only wait for the device.
        return [
            token_id if ok else NoFiniteLogits("the model computed no finite logits")
            for token_id, ok in torch.stack([ids, torch.isfinite(largest[:, 0])], dim=-1).tolist()
        ]

    def _room(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Float32 of (B, V), of (B, V) and zeros up to whole blocks, and of (B, V)."""
        num_rows, vocab_size = logits.shape
        width = -(-vocab_size // _BLOCK) * _BLOCK
        room = self._scratch
        if room.ndim != 3 or room.shape[1] < num_rows or room.shape[2] != width or room.device != logits.device:
            self._scratch = room = torch.zeros(3, num_rows, width, device=logits.device)
        scores, weights, spare = room[:, :num_rows]
        return scores[:, :vocab_size], weights, spare[:, :vocab_size]


def _draw_ids(
    logits: torch.Tensor, weights: torch.Tensor, spare: torch.Tensor, sequences: list[Sequence]
) -> torch.Tensor:
    """Draw one id per row of (B, V): temperature, then top_k, top_p and min_p, in the order of transformers.

    Each of the three keeps what is at least as likely as some id, so that of equally likely ids all stay or none.
    Greedy is the first of the likeliest. ``logits`` are relative to the largest, and are overwritten.
    """
    every = [sequence.params for sequence in sequences]
    settings = [
        (params.temperature, params.top_k, params.top_p, params.min_p, draw(sequence.seed, sequence.num_generated))
        if params.temperature
        else (1.0, 0, 1.0, 1.0, 0.0)
        for params, sequence in zip(every, sequences, strict=True)
    ]
    uploaded = upload(numpy.array(settings, numpy.float64), logits.device)  # (B, 5)
    temperature, top_k, top_p, min_p, points = uploaded.split(1, dim=-1)
    logits.div_(temperature.float())
    torch.exp(logits, out=weights[:, : logits.shape[-1]])
    floor = min_p.log().float()  # (B, 1), of logits; -inf keeps all
    cut = [row for row, params in enumerate(every) if params.temperature and (params.top_k or params.top_p < 1)]
    if cut:
        index = upload(numpy.array(cut), logits.device)
        chosen = torch.index_select(logits, 0, index, out=spare[: len(cut)])  # (T, V)
        total = _block_sums(weights).sum(-1, keepdim=True)[index]
        floor[index] = torch.maximum(floor[index], _floors(chosen, total, top_k[index], top_p[index]))
    if cut or any(params.min_p or not params.temperature for params in every):
        weights[:, : logits.shape[-1]] *= torch.ge(logits, floor, out=logits)
    return _ids_at(weights, points)


def _block_sums(weights: torch.Tensor) -> torch.Tensor:
    return weights.view(len(weights), -1, _BLOCK).sum(-1).double()  # (B, N)


def _ids_at(weights: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """The id in each row at which the cumulated weight exceeds ``points`` (B, 1) of the whole: first its block,
    then within. Rounding never carries it to an id without weight.
    """
    sums = _block_sums(weights)
    ends = sums.cumsum(-1)  # (B, N)
    goals = points * ends[:, -1:]
    block = _first_beyond(ends, goals)  # (B, 1)
    rest = (goals - ends.gather(-1, block) + sums.gather(-1, block)).clamp_(min=0)
    blocks = weights.view(len(weights), -1, _BLOCK)
    within = blocks.gather(1, block[..., None].expand(-1, -1, _BLOCK))[:, 0].double().cumsum(-1)  # (B, _BLOCK)
    return (block * _BLOCK + _first_beyond(within, rest))[:, 0]


def _first_beyond(cumulative: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
    total = cumulative[:, -1:].contiguous()
    found = torch.searchsorted(cumulative, goals, right=True)
    # No row ends outside, not even one that holds NaN.
    return torch.minimum(found, torch.searchsorted(cumulative, total)).clamp_(max=cumulative.shape[-1] - 1)


def _floors(logits: torch.Tensor, total: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The least logit that stays in each row of (T, V), which are put in another order; (T, 1).

    ``total`` (T, 1) is the weight of the whole row.
    """
    vocab_size = logits.shape[-1]
    if logits.device.type != "cpu" or vocab_size <= _MOST_CANDIDATES:
        return _floors_among(logits.sort(-1, descending=True).values, total, top_k, top_p)
    values = logits.numpy()
    values.partition(vocab_size - _MOST_CANDIDATES, -1)
    largest = _descending(values[:, -_MOST_CANDIDATES:])
    floors = _floors_among(largest, total, top_k, top_p)
    # Where even the last candidate stays, others that were not selected may stay too, or count for top_p.
    flat = ((floors <= largest[:, -1:]) | (top_k > _MOST_CANDIDATES)).squeeze(-1).nonzero().squeeze(-1)
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
    weights = (largest.exp() * (largest >= by_k)).double()
    total = torch.where(top_k > 0, weights.sum(-1, keepdim=True), total)
    before = weights.cumsum(-1) - weights
    num_kept = (before < top_p * total).sum(-1, keepdim=True)
    by_p = largest.gather(-1, num_kept.clamp(min=1) - 1)
    return torch.where(top_p < 1, torch.maximum(by_p, by_k), by_k)
