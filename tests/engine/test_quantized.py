"""int8 weights: nearly the same logits out of less memory."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from generation.engine import ModelRefused, SamplingParams, load_engine, parse_models
from generation.engine.quantized import Int8Linear, packed, quantize, speed_up_quantized, widened
from tests.engine import tiny


def num_bytes(model: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *model.buffers()])


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_logits_are_nearly_those_of_the_whole_model(family: str, dtype: torch.dtype) -> None:
    whole = copy.deepcopy(tiny.model(family)).to(dtype)
    whole.set_attn_implementation("eager")
    small = copy.deepcopy(whole)
    quantize(small)
    layers = [module for module in small.modules() if isinstance(module, Int8Linear)]
    assert len(layers) == 3 * 7 and type(small.get_output_embeddings()) is nn.Linear
    ids = torch.tensor([[30, 50, 70, 90, 110, 130]])
    with torch.inference_mode():
        expected = whole(input_ids=ids).logits.float()
        for way in (widened, packed):
            for layer in layers:
                layer.ways = (way,) * 4
            got = small(input_ids=ids).logits.float()
            assert torch.cosine_similarity(expected, got, dim=-1).min() >= 0.99
    assert num_bytes(small) < 0.75 * num_bytes(whole)


def test_it_rounds_each_weight_by_at_most_half_a_step() -> None:
    torch.manual_seed(1)
    linear = nn.Linear(32, 8)
    with torch.no_grad():
        linear.weight[3] = 0
        linear.weight[5] *= 1000
    layer = Int8Linear(linear)
    error = (layer.weight.float() * layer.scale[:, None] - linear.weight).abs()
    assert (error <= layer.scale[:, None] * 0.5001).all()


def test_it_takes_the_faster_way() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    quantize(model)
    said = speed_up_quantized(model, lambda way, layers, num_rows: 2e-3 if way is widened else 1e-3)
    assert said is not None and "packed" in said
    assert {module.ways for module in model.modules() if isinstance(module, Int8Linear)} == {(packed,) * 4}


def test_a_model_is_loaded_as_int8_and_answers(tmp_path: Path) -> None:
    tiny.model("qwen2").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    lines: list[str] = []
    texts = []
    for _ in range(2):
        (spec,) = parse_models(f"m={tmp_path}?context=64&quantization=int8&dtype=float32")
        engine = load_engine(spec, slots=1, log=lines.append)
        sequence = engine.submit([30, 50], SamplingParams(temperature=0, max_new_tokens=12))
        texts.append([token for event in sequence for token in event.ids])
        engine.close()
    assert texts[0] == texts[1] and len(set(texts[0])) > 4
    assert any("int8 and float32" in line for line in lines) and any("int8 layers:" in line for line in lines)


def test_it_refuses_what_it_cannot_quantize(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="int8"):
        parse_models(f"m={tmp_path}?quantization=int3")
    with pytest.raises(ModelRefused, match="no linear layers"):
        quantize(copy.deepcopy(tiny.model("gpt2")))  # its layers are of another class
    done = copy.deepcopy(tiny.model("llama"))
    done.config.quantization_config = {"quant_method": "awq"}
    with pytest.raises(ModelRefused, match="quantized already"):
        quantize(done)
