"""Greedy float32 replies are those of transformers' generate, whatever joins and leaves meanwhile."""

import random
from collections.abc import Hashable

import pytest

from generation.engine import Engine, EngineConfig, EventType, FinishReason, SamplingParams, Sequence
from tests.engine import families, tiny

GREEDY = SamplingParams(temperature=0, max_new_tokens=20)


def drain(engine: Engine) -> dict[Hashable, list[int]]:
    """Iterate until nothing is left; the ids of each sequence."""
    ids: dict[Hashable, list[int]] = {}
    while engine.num_remaining_jobs():
        for event in engine.iterate():
            ids.setdefault(event.identifier, []).extend(event.ids)
    return ids


def random_prompt(rng: random.Random, low: int, high: int) -> list[int]:
    return [rng.randrange(4, tiny.VOCAB_SIZE) for _ in range(rng.randint(low, high))]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_it_equals_generate_through_random_joins_and_leaves(family: str) -> None:
    rng = random.Random(family)
    prompts = [random_prompt(rng, 1, 90) for _ in range(10)]
    lengths = [rng.randint(1, 24) for _ in prompts]
    expected = [tiny.generate(family, prompt, n) for prompt, n in zip(prompts, lengths, strict=True)]
    assert len({tuple(reply) for reply in expected}) == len(prompts)
    assert len({token for reply in expected for token in reply}) > 20, "replies too alike to prove anything"

    engine = Engine(tiny.model(family), tiny.tokenizer(), EngineConfig(slots=4, context=256, prefill_chunk=16))
    got: dict[Hashable, list[int]] = {}
    waiting = list(enumerate(zip(prompts, lengths, strict=True)))
    while waiting or engine.num_remaining_jobs():
        if waiting and rng.random() < 0.4:
            index, (prompt, length) = waiting.pop()
            reply = expected[index]
            known = reply[: rng.choice([0, 0, length // 2])]
            got[index] = list(known)
            engine.submit(
                prompt,
                SamplingParams(temperature=0, max_new_tokens=length),
                identifier=index,
                generated_ids=known,
            )
        for event in engine.iterate():
            got[event.identifier].extend(event.ids)
    assert [got[index] for index in range(len(prompts))] == expected


def test_it_ends_at_any_of_the_models_ends() -> None:
    """Replies ran on and wrote the user's turn, since only the tokenizer's EOS was heeded (Blaizzy/mlx-vlm#2112)."""
    prompt = [30, 50, 70]
    free = tiny.generate("llama", prompt, 30)
    end = next(token for index, token in enumerate(free) if index > 3 and token not in free[:index])
    eos = (tiny.EOS, 399, end)
    engine = Engine(tiny.model("llama", eos), tiny.tokenizer(), EngineConfig(slots=2, context=128))
    sequence = engine.submit(prompt, SamplingParams(temperature=0, max_new_tokens=30))
    ids = drain(engine)[None]
    assert ids == tiny.generate("llama", prompt, 30, eos) == free[: free.index(end) + 1]
    last = sequence.wait(0)
    assert last is not None and last.reason is FinishReason.STOP


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_it_answers_a_short_prompt_alike_alone_and_beside_a_long_one(family: str) -> None:
    """A short prompt was answered badly when batched with a long one (unslothai/unsloth#3699)."""
    rng = random.Random(3)
    short, long = random_prompt(rng, 10, 10), random_prompt(rng, 500, 500)

    def reply(*prompts: list[int]) -> list[int]:
        engine = Engine(tiny.model(family), tiny.tokenizer(), EngineConfig(slots=2, context=600))
        for index, prompt in enumerate(prompts):
            engine.submit(prompt, GREEDY, identifier=index)
        return drain(engine)[len(prompts) - 1]

    assert reply(long, short) == reply(short) == tiny.generate(family, short, 20)


def test_it_ends_where_a_long_neighbour_would_change_how_positions_are_turned() -> None:
    """Beside a long prompt a short one was answered otherwise (huggingface/transformers#22707, unslothai/unsloth#9708):
    this embedding takes other factors for a whole forward once any position in it is beyond the original length.
    """
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    rotary = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 16.0, **factors}
    options = {"original_max_position_embeddings": 64, "rope_parameters": rotary}
    model = families.build("phi3", tiny.VOCAB_SIZE, **options).float().eval()
    engine = Engine(model, tiny.tokenizer(), EngineConfig(slots=2, context=256))
    assert engine.context == 64


def test_it_takes_a_prompt_of_exactly_one_chunk_more_or_less() -> None:
    for length in (15, 16, 17, 32, 33):
        prompt = random_prompt(random.Random(length), length, length)
        engine = Engine(tiny.model("qwen2"), tiny.tokenizer(), EngineConfig(slots=2, context=64, prefill_chunk=16))
        engine.submit(prompt, SamplingParams(temperature=0, max_new_tokens=8))
        assert drain(engine)[None] == tiny.generate("qwen2", prompt, 8), length


def test_it_reports_a_long_prompts_progress() -> None:
    engine = Engine(tiny.model("llama"), tiny.tokenizer(), EngineConfig(slots=1, context=64, prefill_chunk=16))
    engine.submit(list(range(10, 50)), SamplingParams(temperature=0, max_new_tokens=1))
    events = [event for _ in range(3) for event in engine.iterate()]
    assert [event.done for event in events if event.type is EventType.PREFILL] == [16, 32, 40]
    assert [event.type for event in events][0] is EventType.STARTED
    assert [event.type for event in events][-2:] == [EventType.TOKEN, EventType.END]


def test_it_never_mixes_the_replies_of_many_people() -> None:
    """Concurrent answers reached the wrong requests, in a second batch above all (ggml-org/llama.cpp#6681)."""
    rng = random.Random(16)
    prompts = [random_prompt(rng, 5, 40) for _ in range(16)]
    engine = Engine(tiny.model("llama"), tiny.tokenizer(), EngineConfig(slots=16, context=128)).start()
    try:
        for _ in range(2):
            sequences: list[Sequence] = [engine.submit(prompt, GREEDY) for prompt in prompts]
            replies = [[token for event in sequence for token in event.ids] for sequence in sequences]
            assert replies == [tiny.generate("llama", prompt, 20) for prompt in prompts]
    finally:
        engine.close()
