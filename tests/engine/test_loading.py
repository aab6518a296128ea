"""What may be imported, what is refused, and the built-in model once."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
)

from generation.engine import (
    Engine,
    EngineConfig,
    FinishReason,
    ModelRefused,
    SamplingParams,
    load_engine,
    parse_models,
)
from tests.engine import tiny


def test_it_imports_neither_django_nor_celery_nor_torch() -> None:
    program = (
        "import sys, generation.engine as e\n"
        "s, = e.parse_models('m=mock:?rate=1000')\n"
        "g = e.load_engine(s, slots=1)\n"
        "q = g.submit(g.encode([{'role': 'user', 'content': 'hi'}]), e.SamplingParams(max_new_tokens=2))\n"
        "assert ''.join(x.text for x in q) == 'hi hi'\n"
        "g.close()\n"
        "heavy = {'django', 'celery', 'torch', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_it_refuses_models_that_it_would_run_wrongly() -> None:
    torch.manual_seed(0)
    small = {
        "vocab_size": tiny.VOCAB_SIZE,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    for model in (
        FalconForCausalLM(FalconConfig(**small)),
        BloomForCausalLM(BloomConfig(vocab_size=tiny.VOCAB_SIZE, hidden_size=64, n_layer=2, n_head=4)),
        Lfm2ForCausalLM(
            Lfm2Config(**small, num_key_value_heads=2, intermediate_size=64, layer_types=["conv", "full_attention"])
        ),
    ):
        with pytest.raises(ModelRefused, match=type(model).__name__):
            Engine(model, tiny.tokenizer(), EngineConfig(slots=1, context=32))


def test_it_loads_a_folder(tmp_path: Path) -> None:
    tiny.model("qwen2").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    (spec,) = parse_models(f"m={tmp_path}?context=64&slots=3&dtype=float32")
    lines: list[str] = []
    engine = load_engine(spec, slots=1, log=lines.append)
    sequence = engine.submit([30, 50], SamplingParams(temperature=0, max_new_tokens=6))
    assert [token for event in sequence for token in event.ids] == tiny.generate("qwen2", [30, 50], 6)
    assert engine.stats().slots == 3 and engine.context == 64
    assert "ready" in lines[-1]
    engine.close()


def test_it_answers_with_the_built_in_model() -> None:
    (spec,) = parse_models("m=builtin:smollm2-135m?context=512")
    engine = load_engine(spec, slots=1)
    prompt = engine.encode([{"role": "user", "content": "What is the capital of France?"}])
    sequence = engine.submit(prompt, SamplingParams(temperature=0, max_new_tokens=40))
    assert "Paris" in "".join(event.text for event in sequence)
    end = sequence.wait()
    assert end is not None and end.reason is FinishReason.STOP
    engine.close()
