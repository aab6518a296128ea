from pathlib import Path

import pytest

from generation.engine import parse_models


def test_it_reads_several_models_with_options() -> None:
    small, big, fake = parse_models(
        "small=builtin:smollm2-135m  big=Qwen/Qwen2-7B?queue=a100&dtype=bfloat16&context=8192&slots=16&compile=true\n"
        "fake=mock:?rate=2.5&context=100"
    )
    assert (small.kind, small.queue, small.context, small.slots) == ("builtin", "gpu", None, None)
    assert (big.kind, big.source, big.queue) == ("hub", "Qwen/Qwen2-7B", "a100")
    assert (big.dtype, big.context, big.slots, big.compile) == ("bfloat16", 8192, 16, True)
    assert (fake.kind, fake.rate, fake.context, fake.default_new_tokens) == ("mock", 2.5, 100, 64)


def test_it_tells_the_kinds_of_sources_apart(tmp_path: Path) -> None:
    for source, kind in [
        ("gpt2", "hub"),
        ("owner/name", "hub"),
        ("/models/x", "folder"),
        ("./x", "folder"),
        (str(tmp_path), "folder"),
        ("/models/a%20b.gguf", "gguf"),
        ("mock:", "mock"),
    ]:
        (spec,) = parse_models(f"m={source}")
        assert spec.kind == kind, source
    assert parse_models("m=/models/a%20b.gguf")[0].source == "/models/a b.gguf"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("gpt2", "name=source"),
        ("=gpt2", "model name"),
        ("a/b=gpt2", "model name"),
        ("m=", "no source"),
        ("m=mock: m=gpt2", "configured twice"),
        ("m=mock:?rate=0", "rate"),
        ("m=mock:?rate=nan", "rate"),
        ("m=mock:?speed=3", "speed"),
        ("m=mock:?dtype=float32", "dtype"),
        ("m=mock:x", "mock:"),
        ("m=gpt2?rate=3", "rate"),
        ("m=gpt2?dtype=int3", "dtype"),
        ("m=gpt2?quantization=int3", "must be int8"),
        ("m=gpt2?compile=maybe", "0 or 1"),
        ("m=gpt2?slots=0", "slots"),
        ("m=gpt2?slots=1&slots=2", "twice"),
        ("m=gpt2?context", "no value"),
        ("m=gpt2?device=tpu", "device"),
        ("m=builtin:other", "builtin:smollm2-135m"),
        ("m=https://example.com/x", "none of"),
    ],
)
def test_it_refuses_a_faulty_text_and_names_the_fault(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_models(text)
