"""Tiny random models of every family that the engine is known to run like transformers itself."""

from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM

_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
}
_EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4, "num_experts": 4}
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 1024}
_WINDOW: dict[str, Any] = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}

# What a family's configuration has beside, or instead of, the common shape.
_OWN: dict[str, dict[str, Any]] = {
    "biogpt": {"tie_word_embeddings": False},
    "codegen": {**_GPT, "rotary_dim": 8},
    "cohere": {},
    "cohere2": _WINDOW,
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "moe_intermediate_size": 32,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": 24,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 24,
        "head_dim": 8,
    },
    "exaone4": _WINDOW,
    "gemma": {"tie_word_embeddings": False},
    "gemma3_text": {**_WINDOW, "query_pre_attn_scalar": 16, "tie_word_embeddings": False},
    "glm4": {},
    "gpt_neox": {},
    "gpt_oss": {**_WINDOW, **_EXPERTS, "tie_word_embeddings": False},
    "gptj": {**_GPT, "rotary_dim": 8},
    "granite": {},
    "helium": {},
    "mixtral": _EXPERTS,
    "nemotron": {},
    "olmo2": {},
    "olmo3": _WINDOW,
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64, "tie_word_embeddings": False},
    "persimmon": {"num_hidden_layers": 3},
    "phi": {},
    "phi3": {"sliding_window": 16},
    "phimoe": _EXPERTS,
    "qwen3": {},
    "qwen3_moe": {**_EXPERTS, "moe_intermediate_size": 32},
    "smollm3": {"tie_word_embeddings": False},
    "stablelm": {},
    "starcoder2": {"sliding_window": 16, "tie_word_embeddings": False, "initializer_range": 0.6},
}

NAMES = sorted(_OWN)


def build(family: str, vocab_size: int, **options: Any) -> Any:
    """A model with random weights, by the current seed of torch."""
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    shape = _SHAPE if "n_embd" not in _OWN[family] else {}
    wide = {"initializer_range": 0.3, "init_std": 0.3}  # else greedy text says one id for ever
    config = AutoConfig.for_model(
        family, vocab_size=vocab_size, **{**special, **wide, **shape, **_OWN[family], **options}
    )
    return AutoModelForCausalLM.from_config(config)
