"""Two models on one device that are asked at the same moment; `pytest -s -m slow` prints their speeds."""

import threading
import time

import pytest

from generation.engine import Engine, ModelSpec, SamplingParams, load_engine

NUM_SEQUENCES, NUM_TOKENS = 2, 80
ROUNDS = 2


def instants_of_tokens(engine: Engine) -> list[float]:
    """Let it write several replies side by side; when each token came, first to last."""
    params = SamplingParams(temperature=0.0, max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS)
    prompt = engine.encode([{"role": "user", "content": "Tell me a long story about the keeper of a lighthouse."}])
    instants: list[float] = []

    def read(number: int) -> None:
        for event in engine.submit(prompt, params, identifier=number):
            instants.extend(time.perf_counter() for _ in event.ids)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(NUM_SEQUENCES)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return sorted(instants)


def speed(instants: list[float], first: float, last: float) -> float:
    """Tokens a second between two instants."""
    return sum(first < instant <= last for instant in instants) / (last - first)


@pytest.mark.slow
def test_each_of_two_busy_models_keeps_its_share_of_the_device() -> None:
    """Over the time in which both are at work, each has at least 0.4 of the speed that it has alone."""
    specs = [ModelSpec(name, "builtin:smollm2-135m") for name in ("one", "two")]
    engines = [load_engine(spec, slots=NUM_SEQUENCES) for spec in specs]
    alone: list[list[float]] = [[], []]
    together: list[list[float]] = [[], []]
    try:
        for engine in engines:
            instants_of_tokens(engine)  # the first one warms up
        for _ in range(ROUNDS):
            for number, engine in enumerate(engines):
                found = instants_of_tokens(engine)
                alone[number].append(speed(found, found[0], found[-1]))
            both: list[list[float]] = [[], []]

            def write(number: int, both: list[list[float]] = both) -> None:
                both[number] = instants_of_tokens(engines[number])

            writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            first, last = max(found[0] for found in both), min(found[-1] for found in both)
            for number in range(2):
                together[number].append(speed(both[number], first, last))
    finally:
        for engine in engines:
            engine.close()
    for number, spec in enumerate(specs):
        solo, shared = max(alone[number]), max(together[number])
        print(f"{spec.name}: {solo:.1f} tokens/s alone, {shared:.1f} beside the other: {shared / solo:.2f}")
        assert shared >= 0.4 * solo
