"""What holds on a GPU as on a CPU. Each test runs on both, with the device as the only difference."""

import copy
import random
from functools import cache
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import profile, supported_activities

from generation.benchmark.ours import Tokenline
from generation.engine import Engine, EngineConfig, SamplingParams, Sequence
from tests.engine import shapes, tiny

SLOTS, LENGTH = 4, 20

ON_A_GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
)
DEVICES = ["cpu", pytest.param("cuda", marks=ON_A_GPU)]

# What makes the host wait for a GPU.
WAITING = {"tolist", "item", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__", "equal"}


@cache
def model(family: str, device: str) -> Any:
    return copy.deepcopy(tiny.model(family)).to(device)


def generate(family: str, device: str, prompt: list[int]) -> list[int]:
    peer = model(family, device)
    peer.set_attn_implementation("eager" if family == "gemma2" else "sdpa")
    ids = torch.tensor([prompt], device=device)
    with torch.inference_mode():
        output = peer.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False)
    return output[0, len(prompt) :].tolist()


def random_prompts(number: int) -> list[list[int]]:
    rng = random.Random(number)
    return [[rng.randrange(4, tiny.VOCAB_SIZE) for _ in range(rng.randint(1, 60))] for _ in range(number)]


def decoding(family: str, device: str, **options: Any) -> tuple[Engine, list[Sequence]]:
    """An engine all of whose slots are taken by sequences that decode."""
    engine = Engine(model(family, device), tiny.tokenizer(), EngineConfig(slots=SLOTS, context=256))
    params = SamplingParams(max_new_tokens=LENGTH, ignore_eos=True, **options)
    sequences = [engine.submit(prompt, params) for prompt in random_prompts(SLOTS)]
    while not all(sequence.num_generated for sequence in sequences):
        engine.iterate()
    return engine, sequences


class Waits(TorchFunctionMode):
    """Counts the calls for which a GPU's host would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += getattr(function, "__name__", "") in WAITING
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_it_equals_generate_on_the_same_device(family: str, device: str) -> None:
    prompts = random_prompts(2 * SLOTS)
    expected = [generate(family, device, prompt) for prompt in prompts]
    engine = Engine(model(family, device), tiny.tokenizer(), EngineConfig(slots=SLOTS, context=256, prefill_chunk=16))
    params = SamplingParams(temperature=0, max_new_tokens=LENGTH)
    sequences = []
    for prompt in prompts:
        sequences.append(engine.submit(prompt, params))
        engine.iterate()
    while engine.num_remaining_jobs():
        engine.iterate()
    assert [sequence.generated_ids for sequence in sequences] == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_waits_for_the_device_once(device: str) -> None:
    engine, _ = decoding("llama", device, temperature=0)
    steps = engine.stats().steps
    with profile(activities=supported_activities()) as profiled, Waits() as waits:
        for _ in range(8):
            engine.iterate()
    assert engine.stats().steps - steps == waits.number == 8
    # Those in parts of PyTorch too; a CPU has none.
    assert sum(event.name == "cudaStreamSynchronize" for event in profiled.events()) <= waits.number


@pytest.mark.parametrize("device", DEVICES)
def test_keys_and_values_stay_where_they_are(device: str) -> None:
    engine, sequences = decoding("gemma2", device, temperature=1, top_p=0.9)

    def addresses() -> list[int]:
        cache = engine._runner._cache  # type: ignore[attr-defined]
        return [block.data_ptr() for blocks in (cache.keys, cache.values) for block in blocks.values()]

    before = addresses()
    sequences[0].cancel()
    engine.submit(list(range(10, 100)), SamplingParams(max_new_tokens=LENGTH))
    while engine.num_remaining_jobs():
        engine.iterate()
        assert addresses() == before
    assert {torch.device(engine.stats().device).type} == {device} and len(set(before)) == len(before)


@pytest.mark.parametrize(("shape", "billions"), [("1B", 1.236), ("8B", 7.505)])
def test_the_shapes_read_as_much_as_the_models_of_that_name(shape: str, billions: float) -> None:
    assert shapes.bytes_of_weights(shapes.build(shape, "meta", torch.bfloat16)) == pytest.approx(2e9 * billions, 1e-3)


@pytest.mark.parametrize(
    ("shape", "device", "dtype"),
    [
        ("tiny", "cpu", torch.float32),
        pytest.param("1B", "cuda", torch.bfloat16, marks=ON_A_GPU),
        pytest.param("8B", "cuda", torch.bfloat16, marks=ON_A_GPU),
    ],
)
def test_its_steps_beside_the_memorys_speed_and_the_managers(
    shape: str, device: str, dtype: torch.dtype, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers, num_new = (1, 32), 32
    made = shapes.build(shape, device, dtype)
    num_bytes, speed = shapes.bytes_of_weights(made), shapes.bytes_per_second(device)
    peer = shapes.manager(made, max(numbers), num_new)
    try:
        found = shapes.measure(peer, numbers, num_new, num_bytes, speed)
    finally:
        peer.close()
    config = EngineConfig(slots=max(numbers), context=256)
    ours = Tokenline(lambda take: Engine(made, tiny.tokenizer(), config, on_events=take))
    try:
        found += shapes.measure(ours, numbers, num_new, num_bytes, speed)
    finally:
        ours.close()
    _, manager, one, many = found
    assert [each.number for each in found] == [1, 32, 1, 32]
    with capsys.disabled():
        print(f"\n{shape} in {dtype} on {device}, whose memory copies {speed / 1e9:,.0f} GB/s")
        print(*(each.line() for each in found), sep="\n")
        print(f"32 to 1: {many.tokens_per_second / one.tokens_per_second:.1f} ×", end=", ")
        print(f"to the manager's 32: {many.tokens_per_second / manager.tokens_per_second:.2f} ×")
