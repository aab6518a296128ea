"""Random Llamas of known shapes, and how fast their steps are beside what the device's memory could do."""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from generation.benchmark.peers import ManagerPeer
from generation.benchmark.runs import Contestant, Prompts, Stream, gaps_between

LENGTH = 2048

_SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 400,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "1B": {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "tie_word_embeddings": True,
    },
    "8B": {
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}

_COPIED_BYTES = {"cpu": 2**26, "cuda": 2**30}
_ROUNDS = 5


def build(shape: str, device: str, dtype: torch.dtype) -> Any:
    """Made on its device, without an end of text. The weights are wide, so that replies vary."""
    config = LlamaConfig(
        **_SHAPES[shape],
        max_position_embeddings=LENGTH,
        initializer_range=0.3 if shape == "tiny" else 0.02,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(7)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.generation_config.pad_token_id = 0
    return model.eval()


def bytes_of_weights(model: Any) -> int:
    """What a step reads of them: all but an embedding that only looks up rows."""
    embedding = model.get_input_embeddings().weight
    looked_up = embedding is not model.get_output_embeddings().weight
    return sum(each.nbytes for each in model.parameters()) - looked_up * embedding.nbytes


def bytes_per_second(device: str) -> float:
    """What the device's memory reads and writes while it copies."""
    source = torch.ones(_COPIED_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    taken = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        target.copy_(source)
        target[-1].item()  # waits for it
        taken.append(time.perf_counter() - started)
    return 2 * source.nbytes / min(taken)


@dataclass(frozen=True, slots=True)
class Steps:
    """Of ``number`` sequences that all decode."""

    name: str
    number: int
    seconds: float
    share: float  # of the memory's speed that reading the weights once a step comes to

    @property
    def tokens_per_second(self) -> float:
        return self.number / self.seconds

    def line(self) -> str:
        return (
            f"{self.name}, {self.number} at a time: {self.seconds * 1000:.2f} ms a step, "
            f"{self.tokens_per_second:,.0f} tokens/s, {self.share:.0%} of the memory's speed"
        )


def measure(
    contestant: Contestant, numbers: tuple[int, ...], num_new: int, num_bytes: int, speed: float
) -> list[Steps]:
    """The median step with each number of sequences. Raises RunFailed."""
    prompts = Prompts(range(4, 400), [16, 24])
    found = []
    for number in numbers:
        contestant.run(prompts.requests(number, 2))  # first calls allocate and choose
        seconds = _step(contestant.run(prompts.requests(number, num_new)))
        found.append(Steps(contestant.name, number, seconds, num_bytes / seconds / speed))
    return found


def manager(model: Any, number: int, num_new: int) -> ManagerPeer:
    return ManagerPeer(model, number, 24 + num_new)


def _step(streams: list[Stream]) -> float:
    begun = max(stream.arrivals[0] for stream in streams)
    return median(gaps_between(streams, begun, float("inf")))
