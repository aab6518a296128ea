"""Compiled models say what `generate` says, from one graph, whatever joins and leaves."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GptOssConfig, GptOssForCausalLM

from generation.engine import Engine, EngineConfig, SamplingParams
from generation.engine.runner import PackedRunner
from tests.engine import tiny

SLOTS = 4

# PyTorch's compiler uses parts of PyTorch that are deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def _with_a_compiler() -> None:
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no C++ compiler")
        pytest.skip("there is no C++ compiler: install g++")


def compiled(model: Any) -> PackedRunner:
    runner = PackedRunner(model, SLOTS, 256)
    runner.compile()
    return runner


def gpt_oss() -> Any:
    torch.manual_seed(7)
    model = GptOssForCausalLM(
        GptOssConfig(
            vocab_size=tiny.VOCAB_SIZE,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=16,
            max_position_embeddings=2048,
            initializer_range=0.3,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
    )
    for layer in model.model.layers:  # sinks that weigh something
        layer.self_attn.sinks.data.normal_(std=2.0)
    return model.float().eval()


def random_replies(runner: PackedRunner, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """Greedy replies of prompts that join at random steps; from the engine's own thread at the end."""
    rng = random.Random(5)
    engine = Engine(runner, tiny.tokenizer(), EngineConfig(slots=SLOTS, context=256, prefill_chunk=16))
    got: list[list[int]] = [[] for _ in prompts]
    waiting = list(enumerate(zip(prompts, lengths, strict=True)))
    *joining, last = waiting
    while joining or engine.num_remaining_jobs():
        if joining and rng.random() < 0.4:
            index, (prompt, length) = joining.pop()
            engine.submit(prompt, SamplingParams(temperature=0, max_new_tokens=length), identifier=index)
        for event in engine.iterate():
            got[event.identifier].extend(event.ids)  # type: ignore[call-overload]
    index, (prompt, length) = last
    for event in engine.submit(prompt, SamplingParams(temperature=0, max_new_tokens=length)):
        got[index].extend(event.ids)
    engine.close()
    return got


def check(model: Any, expected: Any) -> None:
    rng = random.Random(11)
    prompts = [[rng.randrange(4, tiny.VOCAB_SIZE) for _ in range(rng.randint(1, 60))] for _ in range(8)]
    lengths = [rng.randint(2, 20) for _ in prompts]
    runner = compiled(model)
    before = num_graphs()
    assert random_replies(runner, prompts, lengths) == [
        expected(prompt, length) for prompt, length in zip(prompts, lengths, strict=True)
    ]
    assert num_graphs() == before, "a step was compiled anew"


def num_graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def test_a_compiled_model_equals_generate_without_compiling_again() -> None:
    """Gemma 2, which has soft caps, a sliding window in every other layer, and a cap on its logits."""
    check(tiny.model("gemma2"), lambda prompt, length: tiny.generate("gemma2", prompt, length))


@pytest.mark.slow
def test_sinks_and_experts_are_compiled_too() -> None:
    peer = gpt_oss()
    peer.set_attn_implementation("eager")

    def expected(prompt: list[int], length: int) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = peer.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, do_sample=False)
        return output[0, len(prompt) :].tolist()

    check(gpt_oss(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gpt2"])
def test_other_families_equal_generate(family: str) -> None:
    check(tiny.model(family), lambda prompt, length: tiny.generate(family, prompt, length))


def test_it_says_what_to_install_where_no_compiler_is(tmp_path: Path) -> None:
    tiny.model("llama").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    program = (
        "import sys, generation.engine as e\n"
        f"s, = e.parse_models('m={tmp_path}?compile=1&context=64&dtype=float32')\n"
        "try:\n"
        "    e.load_engine(s, slots=1)\n"
        "except e.ModelRefused as error:\n"
        "    assert 'install g++' in str(error), error\n"
        "    sys.exit(7)\n"
    )
    environment = {**os.environ, "CXX": "no-such-compiler", "TOKENLINE_CACHE": str(tmp_path / "cache")}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 7
