"""What may be imported, what is refused, and the built-in model once."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm.auto import tqdm
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
    progress,
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


def test_a_loaded_folder_keeps_all_its_ends_and_one_bos(tmp_path: Path) -> None:
    """Replies ran on, since one id of the model's list was heeded, and prompts began with two BOS after a tokenizer
    was saved and loaded again (Blaizzy/mlx-vlm#2112, deepseek-ai/DeepSeek-R1#151, vllm-project/vllm#27515).
    """
    free = tiny.generate("llama", [30, 50, 70], 30)
    end = next(token for index, token in enumerate(free) if index > 3 and token not in free[:index])
    model = copy.deepcopy(tiny.model("llama"))
    model.generation_config.eos_token_id = [tiny.EOS, 399, end]
    model.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    (spec,) = parse_models(f"m={tmp_path}?context=64&dtype=float32")
    engine = load_engine(spec, slots=1, log=lambda text: None)
    prompt = engine.encode([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
    assert prompt.count(tiny.BOS) == 1 and prompt[0] == tiny.BOS
    sequence = engine.submit([30, 50, 70], SamplingParams(temperature=0, max_new_tokens=30))
    assert [token for event in sequence for token in event.ids] == free[: free.index(end) + 1]
    last = sequence.wait()
    assert last is not None and last.reason is FinishReason.STOP
    engine.close()


def write_gguf(path: Path, model: Any) -> None:
    """A Llama and the tiny tokenizer, as llama.cpp's converter writes them: rotary halves interleaved."""
    import gguf

    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    description = json.loads(tiny.tokenizer().backend_tokenizer.to_str())["model"]
    tokens = sorted(description["vocab"], key=description["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in tiny.CONTROL_TOKENS else 1 for token in tokens])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in description["merges"]])
    writer.add_bos_token_id(tiny.BOS)
    writer.add_eos_token_id(tiny.EOS)
    writer.add_chat_template(tiny.CHAT_TEMPLATE)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    tensors = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
        "output.weight": state["lm_head.weight"],
    }
    for layer in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            tensor = state[f"model.layers.{layer}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                heads = config.num_attention_heads if theirs == "attn_q" else config.num_key_value_heads
                tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
            tensors[f"blk.{layer}.{theirs}.weight"] = tensor
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_it_loads_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny model.gguf"
    write_gguf(path, tiny.model("llama"))
    (spec,) = parse_models(f"m={str(path).replace(' ', '%20')}?context=64&dtype=float32")
    lines: list[str] = []
    engine = load_engine(spec, slots=1, log=lines.append)
    prompt = engine.encode([{"role": "user", "content": "hi"}])
    assert prompt == tiny.tokenizer().apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )
    sequence = engine.submit(prompt, SamplingParams(temperature=0, max_new_tokens=8))
    assert [token for event in sequence for token in event.ids] == tiny.generate("llama", prompt, 8)
    assert "loading" in lines[0] and "float32 on cpu" in lines[1] and "ready after" in lines[-1]
    engine.close()


def test_it_tells_bars_as_lines_and_lets_errors_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bar that redraws itself in a log file was one line of thousands of characters."""
    monkeypatch.setattr(progress, "_INTERVAL_SECONDS", 0.0)
    lines: list[str] = []
    with progress.bars_to_log(lines.append, "m"):
        for _ in tqdm(range(4), desc="Loading weights", mininterval=0, ncols=80):
            pass
        print("an error", file=sys.stderr)
    assert capsys.readouterr().err.strip() == "an error"
    assert "m: Loading weights 50 %, 2 of 4" in lines
    assert all("|" not in line and "\r" not in line for line in lines)
    assert not any("weights 0 %" in line for line in lines), "a bar that has just begun"


def test_it_answers_with_the_built_in_model() -> None:
    (spec,) = parse_models("m=builtin:smollm2-135m?context=512")
    engine = load_engine(spec, slots=1)
    prompt = engine.encode([{"role": "user", "content": "What is the capital of France?"}])
    sequence = engine.submit(prompt, SamplingParams(temperature=0, max_new_tokens=40))
    assert "Paris" in "".join(event.text for event in sequence)
    end = sequence.wait()
    assert end is not None and end.reason is FinishReason.STOP
    engine.close()
