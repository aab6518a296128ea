"""What the built-in model must say: transformers' own greedy `generate` in fp32, in a process of its own.

Reads conversations from stdin as JSON, `[[[prompt, max_new_tokens], …], …]`, and writes the replies to stdout. A
conversation is cut before a reply that rounding could change: where at some token the two best logits are as good as
equal, no implementation is the right one.
"""

import json
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from generation.engine.builtin import builtin_folder

CLEAR_MARGIN = 0.01


def reply_to(model: Any, tokenizer: Any, messages: list[dict[str, str]], max_new_tokens: int) -> str | None:
    """The reply; None if it isn't clear, or ends within a character."""
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = model.generate(
        **encoded,
        do_sample=False,
        max_new_tokens=max_new_tokens,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    for logits in made.logits:  # each (1, V)
        best, second = logits[0].topk(2).values.tolist()
        if best - second < CLEAR_MARGIN:
            return None
    ids = made.sequences[0, encoded["input_ids"].shape[1] :]
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return None if "\ufffd" in text else text


def main() -> None:
    folder = builtin_folder(log=lambda text: print(text, file=sys.stderr))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    answered = []
    with torch.inference_mode():
        for prompts in json.load(sys.stdin):
            messages: list[dict[str, str]] = []
            replies = []
            for prompt, max_new_tokens in prompts:
                messages.append({"role": "user", "content": prompt})
                reply = reply_to(model, tokenizer, messages, max_new_tokens)
                if reply is None:
                    break
                replies.append(reply)
                messages.append({"role": "assistant", "content": reply})
            answered.append(replies)
    json.dump(answered, sys.stdout)


if __name__ == "__main__":
    main()
