"""Tiny random models of several families and a tiny byte-level tokenizer with a chat template."""

from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tests.engine import families

VOCAB_SIZE = 400
BOS, EOS, START, END = range(4)
CONTROL_TOKENS = ["<s>", "</s>", "<|start|>", "<|end|>"]

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)

TEXT = [
    "The quick brown fox jumps over the lazy dog. User: hello there! Assistant: hi, how are you today?",
    "system user assistant\nOne two three four five, six: seven; eight nine ten. def f(x):\n    return x + 1\n",
    "漢字とかな 🔥 👩‍👩‍👧 Ελληνικά русский текст naïve café",
]

FAMILIES = ["llama", "qwen2", "gemma2", "mistral", "gpt2"]


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE. Ids of single bytes exist, so that characters can be split in any way."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=CONTROL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(TEXT * 3, trainer)
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="</s>", chat_template=CHAT_TEMPLATE
    )


def byte_ids(text: str) -> list[int]:
    """One id for each UTF-8 byte."""
    raw = tokenizer().backend_tokenizer
    alphabet = {}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    for byte, code in zip(printable + others, [*printable, *range(256, 256 + len(others))], strict=True):
        alphabet[byte] = chr(code)
    return [raw.token_to_id(alphabet[byte]) for byte in text.encode()]


@cache
def model(family: str, eos: tuple[int, ...] = (EOS,)) -> Any:
    """A random float32 model, the same at each call. Wide weights make its greedy text varied."""
    shared = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    torch.manual_seed(7)
    made: Any
    if family == "llama":
        made = LlamaForCausalLM(LlamaConfig(**shared))
    elif family == "qwen2":
        made = Qwen2ForCausalLM(Qwen2Config(**shared))
    elif family == "mistral":
        made = MistralForCausalLM(MistralConfig(**shared, sliding_window=16))
    elif family == "gemma2":
        made = Gemma2ForCausalLM(
            Gemma2Config(
                **shared,
                head_dim=16,
                tie_word_embeddings=False,
                query_pre_attn_scalar=16,
                sliding_window=16,
                attn_logit_softcapping=20.0,
                final_logit_softcapping=30.0,
            )
        )
    elif family in families.NAMES:
        made = families.build(family, VOCAB_SIZE)
    else:
        made = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCAB_SIZE,
                n_embd=64,
                n_layer=3,
                n_head=4,
                n_positions=1024,
                initializer_range=0.3,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
    made = made.float().eval()
    made.generation_config.eos_token_id = list(eos)
    made.generation_config.pad_token_id = 0
    return made


def generate(family: str, prompt: list[int], max_new_tokens: int, eos: tuple[int, ...] = (EOS,)) -> list[int]:
    """What transformers' own generate makes of a prompt, greedily, with its own attention."""
    peer = model(family, eos)
    before = peer.config._attn_implementation
    peer.set_attn_implementation("eager" if family in ("gemma2", "gpt_oss") else "sdpa")
    try:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = peer.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, do_sample=False
            )
    finally:
        peer.set_attn_implementation(before)
    return output[0, len(prompt) :].tolist()
