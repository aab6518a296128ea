"""Slots are made only where their keys and values fit into memory."""

import gc
import os
from pathlib import Path

import pytest
import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from generation.engine import ModelRefused, load_engine, memory, parse_models
from generation.engine.kv_cache import SlotCache
from generation.engine.runner import PackedRunner
from tests.engine import tiny
from tests.site import resident_bytes

CPU = torch.device("cpu")


@pytest.mark.parametrize("family", [*tiny.FAMILIES, "deepseek"])
def test_it_knows_what_a_token_takes(family: str) -> None:
    if family == "deepseek":
        torch.manual_seed(0)
        model = DeepseekV3ForCausalLM(
            DeepseekV3Config(
                vocab_size=tiny.VOCAB_SIZE,
                hidden_size=64,
                intermediate_size=64,
                moe_intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=4,
                n_routed_experts=4,
                num_experts_per_tok=2,
                n_group=2,
                topk_group=1,
                first_k_dense_replace=1,
                kv_lora_rank=16,
                q_lora_rank=16,
                qk_rope_head_dim=8,
                qk_nope_head_dim=12,
                v_head_dim=16,
            )
        )
    else:
        model = tiny.model(family)
    slots, context = 2, 32
    cache = PackedRunner(model, slots, context)._cache
    taken = sum(block.nbytes for blocks in (cache.keys, cache.values) for block in blocks.values())
    assert memory.bytes_per_token(model.config, 4) == taken / (slots * context)


def test_it_refuses_slots_that_do_not_fit_and_says_what_would(tmp_path: Path) -> None:
    tiny.model("llama").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    (spec,) = parse_models(f"m={tmp_path}?slots=900000000&context=64&dtype=float32")
    with pytest.raises(ModelRefused, match=r"900,000,000 slots of 64 tokens need 44,236,800 MB .*768 bytes a token"):
        load_engine(spec, slots=1)


def test_it_leaves_a_margin_and_counts_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    available = 1_000_000_000
    room = available - 256 * 2**20
    monkeypatch.setattr(memory, "available_bytes", lambda device: available)
    fits = memory.check_room("m", 1, room // 1000, 1000, CPU)
    assert "732 MB are free on cpu" in fits
    with pytest.raises(ModelRefused, match=r"slots=1 or context=365782 would fit"):
        memory.check_room("m", 2, room // 1000, 1000, CPU)
    with pytest.raises(ModelRefused, match=r"free on cpu; context=73156 would fit"):
        memory.check_room("m", 10, room // 1000 + 1, 1000, CPU)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 100)
    with pytest.raises(ModelRefused, match="not one token would fit"):
        memory.check_room("m", 2, 10, 1000, CPU)


def test_a_second_model_counts_what_the_first_may_still_take() -> None:
    """Slots take memory only as they are written, so that two models were each given the same free memory."""

    class Runner:
        pass

    first = Runner()
    before = memory.available_bytes(CPU)
    assert before is not None
    memory.promise(first, before // 2, CPU)
    assert memory.available_bytes(CPU) < before * 0.75
    del first
    gc.collect()
    assert memory.available_bytes(CPU) > before * 0.75


def write(folder: Path, limit: str, usage: str, names: tuple[str, str], stat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(limit)
    (folder / names[1]).write_text(usage)
    (folder / "memory.stat").write_text(stat)


def test_it_heeds_the_limits_of_control_groups(tmp_path: Path) -> None:
    """A container was killed, since the machine's memory was taken for its own."""
    own = tmp_path / "own"
    second = ("memory.max", "memory.current")
    write(tmp_path / "v2/a/b", "max\n", "10\n", second, "inactive_file 5\n")
    write(tmp_path / "v2/a", "1000\n", "400\n", second, "anon 1\ninactive_file 100\n")
    own.write_text("0::/a/b\n")
    assert list(memory._cgroup_limits(tmp_path / "v2", own)) == [700]

    first = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    write(tmp_path / "v1/memory/c", "500\n", "200\n", first, "total_inactive_file 50\n")
    own.write_text("8:pids:/\n4:memory:/c\n")
    assert list(memory._cgroup_limits(tmp_path / "v1", own)) == [350]
    assert list(memory._cgroup_limits(tmp_path / "v1", tmp_path / "none")) == []


def test_a_slots_first_token_takes_no_memory_for_its_whole_context() -> None:
    """On huge pages 16 slots of 4,096 tokens took 3.7 GB with the first token of each."""
    slots, heads = 8, 16
    cache = SlotCache(slots, 4096)
    before = resident_bytes(os.getpid())
    keys = torch.ones(heads, slots, 64)
    block, _ = cache.write(0, torch.arange(slots), torch.zeros(slots, dtype=torch.long), keys, keys)
    assert block.nbytes > 100e6
    assert resident_bytes(os.getpid()) - before < block.nbytes / 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slots_take_memory_only_as_they_are_written(dtype: torch.dtype) -> None:
    cache = SlotCache(4, 500_000)
    before = resident_bytes(os.getpid())
    keys = torch.ones(1, 1, 64, dtype=dtype)
    block, _ = cache.write(0, torch.tensor([1]), torch.tensor([7]), keys, keys)
    assert block.shape == (4, 1, 500_000, 64) and block.nbytes > 200e6
    assert block.sum() == 64
    assert resident_bytes(os.getpid()) - before < block.nbytes / 4
