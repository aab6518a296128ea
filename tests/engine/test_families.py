"""Each family's greedy float32 replies are those of transformers' generate, with prefixes computed before too."""

import random

import pytest

from generation.engine import Engine, EngineConfig, SamplingParams
from tests.engine import families, tiny

GREEDY = SamplingParams(temperature=0, max_new_tokens=10)


@pytest.mark.parametrize("family", families.NAMES)
def test_it_equals_generate_in_first_and_second_turns(family: str) -> None:
    rng = random.Random(family)

    def ids(count: int) -> list[int]:
        return [rng.randrange(4, tiny.VOCAB_SIZE) for _ in range(count)]

    engine = Engine(tiny.model(family), tiny.tokenizer(), EngineConfig(slots=3, context=128, prefill_chunk=16))
    expected: list[list[int]] = []

    def replies(*prompts: list[int]) -> list[list[int]]:
        """Of prompts that come together; what was computed before must not be computed again."""
        expected.extend(tiny.generate(family, prompt, 10) for prompt in prompts)
        sequences = [engine.submit(prompt, GREEDY) for prompt in prompts]
        while engine.num_remaining_jobs():
            engine.iterate()
        return [sequence.generated_ids for sequence in sequences]

    system = ids(20)
    first = [system + ids(25), system + ids(3)]
    said = replies(*first)
    second = [first[0] + said[0] + ids(4), first[0] + said[0] + ids(9), first[1] + said[1] + ids(30)]
    said += replies(*second)
    assert said == expected
    assert len({token for reply in expected for token in reply}) > 20, "replies too alike to prove anything"
