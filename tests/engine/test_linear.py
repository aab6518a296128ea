"""Each way of computing a linear layer gives the same, and the one that was faster is taken."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from generation.engine import Engine, EngineConfig, SamplingParams, linear
from generation.engine.linear import ROWS, Way, choose, plain, speed_up_linears, transposed
from tests.engine import tiny


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_rows", [1, 2, 8, 17, 64])
def test_it_computes_the_same_in_every_way(dtype: torch.dtype, bias: bool, num_rows: int) -> None:
    torch.manual_seed(num_rows)
    layer = nn.Linear(48, 24, bias=bias).to(dtype)
    rows = torch.randn(num_rows, 48).to(dtype)
    with torch.inference_mode():
        result = transposed(layer, rows)
        loose = {"atol": 1e-2, "rtol": 0.02} if dtype is torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}
        torch.testing.assert_close(result, plain(layer, rows), **loose)
    assert result.is_contiguous()


def test_it_takes_the_faster_way_for_each_number_of_rows() -> None:
    """Rows fall into the classes up to 2, up to 16 and more; a gain below a twentieth is none."""
    seconds = {1: (1.0, 4.0), 8: (2.0, 1.0), 64: (1.0, 0.99)}

    def measure(way: Way, layers: Sequence[Any], num_rows: int) -> float:
        return seconds[num_rows][way is transposed] * 1e-3

    model = copy.deepcopy(tiny.model("llama"))
    said = speed_up_linears(model, measure)
    layer = model.model.layers[0].mlp.up_proj
    assert layer.ways == (plain, transposed, plain, plain)
    assert said is not None and "8 rows plain" in said
    called = []

    def spy(name: str) -> Way:
        return lambda layer, rows: (called.append(name), plain(layer, rows))[1]  # type: ignore[func-returns-value]

    layer.ways = (*(spy(str(num_rows)) for num_rows in ROWS), spy("compiled"))
    for num_rows in (1, 2, 3, 16, 17, 64):
        layer(torch.zeros(1, num_rows, 64))
    assert called == ["1", "1", "8", "8", "64", "64"]


def test_it_leaves_layers_alone_where_nothing_is_gained() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    speed_up_linears(model, lambda way, layers, num_rows: 1e-3)
    assert {type(module) for module in model.modules() if isinstance(module, nn.Linear)} == {nn.Linear}


def test_it_tries_no_more_rows_where_a_few_take_long() -> None:
    """An output head of 49,152 rows took a second for 64 tokens that it never sees."""
    asked = []

    def measure(way: Way, layers: Sequence[Any], num_rows: int) -> float:
        asked.append(num_rows)
        return 1.0 if way is plain else 0.5

    (ways,), _ = choose([nn.Linear(4, 4)], (plain, transposed), measure)
    assert ways == (transposed, transposed, plain, transposed) and set(asked) == {1, 8}


def test_a_model_with_measured_layers_still_equals_generate() -> None:
    model = copy.deepcopy(tiny.model("qwen2"))
    said = speed_up_linears(model)
    assert said is not None and "1 rows" in said and "64 rows" in said
    engine = Engine(model, tiny.tokenizer(), EngineConfig(slots=2, context=128))
    sequence = engine.submit([30, 50, 70], SamplingParams(temperature=0, max_new_tokens=20))
    assert [token for event in sequence for token in event.ids] == tiny.generate("qwen2", [30, 50, 70], 20)
    engine.close()


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_weights_in_the_order_of_their_columns_equal_generate(family: str) -> None:
    """GPT-2's output head is its embedding too."""

    def measure(way: Way, layers: Sequence[Any], num_rows: int) -> float:
        return (1.0 if layers[0].weight.is_contiguous() else 0.5) * len(layers) * 1e-6

    model = copy.deepcopy(tiny.model(family))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    said = speed_up_linears(model, measure)
    head = model.get_output_embeddings()
    assert said is not None and f"{head.out_features} × {head.in_features} by columns" in said
    assert not head.weight.is_contiguous() and head.weight.t().is_contiguous()
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    engine = Engine(model, tiny.tokenizer(), EngineConfig(slots=2, context=128))
    sequence = engine.submit([30, 50, 70], SamplingParams(temperature=0, max_new_tokens=20))
    assert [token for event in sequence for token in event.ids] == tiny.generate(family, [30, 50, 70], 20)
    engine.close()


def test_it_copies_no_weights_beyond_a_little_memory_to_time_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(tiny.model("llama"))
    up = model.model.layers[0].mlp.up_proj
    monkeypatch.setattr(linear, "_MOST_COPIED_BYTES", 2 * up.weight.nbytes)
    copied: list[Any] = []

    def measure(way: Way, layers: Sequence[Any], num_rows: int) -> float:
        copied.extend(layer.weight for layer in layers if not layer.weight.is_contiguous())
        return len(layers) * 1e-6

    speed_up_linears(model, measure)
    distinct = {weight.data_ptr(): weight.nbytes for weight in copied}
    assert 0 < sum(distinct.values()) <= 2 * up.weight.nbytes
