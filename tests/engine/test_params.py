import json
from typing import Any

import pytest

from generation.engine import ParamsError, SamplingParams
from generation.engine.params import RANGES

CEILING = 2048


def parse(**params: object) -> SamplingParams:
    return SamplingParams.parse(params, max_new_tokens=CEILING)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", -1),
        ("temperature", 2.5),
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", 10**400),
        ("top_p", -1),
        ("top_p", 0),
        ("top_p", 2),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", 10**12),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("max_new_tokens", -1),
        ("max_new_tokens", 10**12),
        ("max_new_tokens", CEILING + 1),
        ("max_new_tokens", 5.0),
        ("max_new_tokens", True),
        ("min_new_tokens", -1),
        ("min_new_tokens", 513),
        ("repetition_penalty", 0),
        ("repetition_penalty", -float("inf")),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1.0),
        ("stop", "text"),
        ("stop", [""]),
        ("stop", [1]),
        ("stop", ["x"] * 9),
        ("stop", ["x" * 1000]),
        ("grammar", {"type": "regex", "value": "a*"}),
        ("tempreature", 1),
        ("ignore_eos", True),
        ("logit_bias", {"5": 1}),
    ],
)
def test_it_refuses_a_bad_parameter_and_names_it(name: str, value: object) -> None:
    """One bad parameter killed the engine for everybody (vllm-project/vllm#5822, ggml-org/llama.cpp#19367)."""
    with pytest.raises(ParamsError, match=name) as refusal:
        parse(**{name: value})
    assert len(str(refusal.value)) < 200


def test_it_refuses_what_bare_json_literals_bring() -> None:
    for literal in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(ParamsError, match="temperature"):
            parse(temperature=json.loads(literal))


def test_it_takes_zero_as_no_limit() -> None:
    params = parse(max_new_tokens=0, top_k=0)
    assert params.max_new_tokens == CEILING
    assert params.top_k == 0


def test_it_takes_nothing_as_the_defaults() -> None:
    assert parse() == parse(temperature=None, seed=None, stop=None) == SamplingParams()
    assert SamplingParams.parse({}, max_new_tokens=100).max_new_tokens == 100
    assert SamplingParams.parse({}, max_new_tokens=100, default_new_tokens=64).max_new_tokens == 64


def test_it_takes_a_vanishing_temperature_as_greedy() -> None:
    assert parse(temperature=1e-6).temperature == 0


def test_it_reads_back_what_it_writes_as_json() -> None:
    params = parse(seed=3, stop=["\nUser:"], temperature=1, top_p=0.5)
    assert parse(**json.loads(json.dumps(params.as_json()))) == params


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", float("nan")),
        ("temperature", -1),
        ("top_p", 0.0),
        ("top_k", -1),
        ("max_new_tokens", -1),
        ("min_new_tokens", 513),
        ("stop", ("",)),
        ("logit_bias", [5]),
        ("logit_bias", {5: 101}),
        ("logit_bias", {5: float("nan")}),
        ("logit_bias", {-1: 1}),
        ("logit_bias", {"5": 1}),
        ("ignore_eos", "no"),
    ],
)
def test_it_refuses_a_bad_parameter_of_codes_too(name: str, value: object) -> None:
    given: Any = {name: value}
    with pytest.raises(ParamsError, match=name):
        SamplingParams(**given)


def test_it_keeps_what_only_code_may_set_out_of_json() -> None:
    params = SamplingParams(seed=3, ignore_eos=True, logit_bias={5: -100})
    assert parse(**params.as_json()) == SamplingParams(seed=3)


def test_it_keeps_a_bias_as_it_was_given() -> None:
    biases = {5: 1}
    params = SamplingParams(logit_bias=biases)
    biases[6] = 2
    assert params.logit_bias == {5: 1.0}


def test_every_parameter_that_may_be_sent_has_a_range_but_the_texts() -> None:
    assert set(RANGES) | {"stop"} == set(SamplingParams().as_json())


@pytest.mark.parametrize("name", RANGES)
def test_its_ranges_are_the_ones_that_hold(name: str) -> None:
    within = RANGES[name]
    smallest = 0.01 if within.above else 0
    free = {"max_new_tokens": 0} if name == "min_new_tokens" else {}
    for value in (within.low + smallest, within.high):
        SamplingParams(**{name: value, **free})  # type: ignore[arg-type]
    for value in (within.low if within.above else within.low - 1, within.high + 1):
        with pytest.raises(ParamsError, match=name):
            SamplingParams(**{name: value, **free})  # type: ignore[arg-type]
