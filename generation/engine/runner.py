"""Carries out a step's plan on a transformers model. The only one that builds tensors for it; knows no text.

All that a step computes, decoding rows and chunks of prompts, is one forward of shape (1, T). The model
keeps no cache and builds no mask: our attention function writes and reads the slots.
"""

import inspect
from typing import Any

import torch

from generation.engine.attention import ATTENTION, PackedStep, Part, running_step
from generation.engine.errors import ModelRefused
from generation.engine.groups import length_groups
from generation.engine.kv_cache import SlotCache
from generation.engine.sampling import Sampler
from generation.engine.scheduler import Plan, Segment

# In bfloat16 deep models reach 0.999; a wrong mask or bias leaves far less.
_LEAST_SIMILARITY = 0.98

_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})


class PackedRunner:
    """One model on one device. Raises ModelRefused for a model that it would run wrongly."""

    interval = 0.0
    keeps_prefixes = True

    def __init__(self, model: Any, slots: int, context: int) -> None:
        self._model = model.eval()
        self._call: Any = model  # the model, or its compiled forward
        self._attention = ATTENTION
        config = model.config.get_text_config()
        self.context = min([context, *_limits(config)])
        self.vocab_size: int | None = model.get_input_embeddings().weight.shape[0]
        self.eos_ids = _eos_ids(model)
        self._device = model.device
        self.device, self.dtype = str(model.device), str(model.dtype).removeprefix("torch.")
        self._picks_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._cache = SlotCache(slots, self.context)
        self._sampler = Sampler()
        self._probe = torch.ones(1, device=self._device)
        self._refuse_unknown(config)
        self._verify(config.num_hidden_layers)

    def compile(self) -> None:
        """Compile the forward, which takes a minute or so, and verify it anew. Before the first plan only."""
        from generation.engine.compiled import OPAQUE_ATTENTION, CompiledForward

        self._call, self._attention = CompiledForward(self._model), OPAQUE_ATTENTION
        try:
            self._verify(self._cache.num_layers)
        except ModelRefused:
            raise
        except Exception as error:
            raise ModelRefused(f"{type(self._model).__name__} cannot be compiled as one graph: {error}") from error

    def run(self, plan: Plan) -> list[int | Exception]:
        with torch.inference_mode():
            return self._run(plan)

    def check(self) -> None:
        # After some errors, an assertion in a kernel for one, every call on that device raises for ever. A copy back
        # takes no memory there: a step that ran out of it may still hold what it had.
        self._probe.item()

    def _run(self, plan: Plan) -> list[int | Exception]:
        for each in plan.admitted:
            self._cache.prepare(each.slot, each.source, each.length)
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        last: list[int] = []  # where each sampling segment ends in the packed step
        for segment in plan.segments:
            tokens += segment.sequence.ids[segment.start : segment.end]
            positions += range(segment.start, segment.end)
            slots += [segment.slot] * segment.length
            if segment.samples:
                last.append(len(tokens) - 1)
            self._cache.note_written(segment.slot, segment.end)
        logits = self._forward(tokens, positions, slots, _parts(plan.decode, plan.prefill), last)
        sampling = [segment.sequence for segment in plan.sampling]
        return self._sampler.sample(logits, sampling) if sampling else []

    def _forward(
        self,
        tokens: list[int],
        positions: list[int],
        slots: list[int],
        parts: tuple[Part, ...],
        last: list[int],
    ) -> torch.Tensor:  # (len(last), V)
        input_ids, position_ids, slot_ids = self._on_device([tokens, positions, slots])
        keep = self._on_device(last or [len(tokens) - 1])
        # Without this the head would compute V logits for every token of a prompt.
        picking = {"logits_to_keep": keep} if self._picks_logits else {}
        with running_step(PackedStep(self._cache, slot_ids, position_ids, parts)):
            output = self._call(input_ids=input_ids[None], position_ids=position_ids[None], use_cache=False, **picking)
        logits: torch.Tensor = output.logits[0]
        return logits if self._picks_logits else logits[keep]

    def _on_device(self, numbers: list[int] | list[list[int]]) -> torch.Tensor:
        """A copy that the host doesn't wait for, where the device is another."""
        pinned = torch.tensor(numbers, pin_memory=self._device.type == "cuda")
        return pinned.to(self._device, non_blocking=True)

    def _refuse_unknown(self, config: Any) -> None:
        name = type(self._model).__name__
        kinds = set(getattr(config, "layer_types", None) or ()) - _KNOWN_LAYERS
        if kinds:
            raise ModelRefused(f"{name} has layers of a kind that this engine does not run: {', '.join(sorted(kinds))}")
        try:
            self._model.set_attn_implementation(ATTENTION)
        except ValueError as error:
            raise ModelRefused(f"{name} takes no other attention than its own") from error
        if self._model.config._attn_implementation != ATTENTION:
            raise ModelRefused(f"{name} takes no other attention than its own")

    def _verify(self, num_layers: int) -> None:
        """A few tokens in chunks through our attention, and at once through the model's plainest own.

        It makes the cache's blocks, and shows models that would be wrong without an error: layers that keep a state
        of their own (convolution, state space), biases that attention functions never see (ALiBi).
        """
        name = type(self._model).__name__
        size = self.vocab_size or 1
        ids = [(11 + 7919 * index) % size for index in range(min(8, self.context))]
        positions = list(range(len(ids)))
        with torch.inference_mode():
            self._model.set_attn_implementation("eager")
            own = self._model(input_ids=torch.tensor([ids], device=self._device), use_cache=False).logits[0, -1]
            self._model.set_attn_implementation(self._attention)
            start = len(ids) // 2
            for chunk in (slice(0, start), slice(start, -1)):
                if length := len(ids[chunk]):
                    part = Part(0, 0, 1, length, chunk.start + length, chunk.start + length)
                    self._forward(ids[chunk], positions[chunk], [0] * length, (part,), [])
            ours = self._forward(ids[-1:], positions[-1:], [0], (Part(0, 0, 1, 1, len(ids), len(ids)),), [0])[0]
        self._cache.note_written(0, len(ids))
        if self._cache.num_layers != num_layers:
            raise ModelRefused(
                f"{name} has {num_layers} layers, but {self._cache.num_layers} of them attend through this engine"
            )
        similarity = torch.cosine_similarity(own.float(), ours.float(), dim=0).item()
        if not similarity > _LEAST_SIMILARITY:
            raise ModelRefused(
                f"{name} computes something else through this engine: its logits have a cosine similarity of "
                f"{similarity:.3f} with its own"
            )


def _parts(decode: list[Segment], prefill: list[Segment]) -> tuple[Part, ...]:
    """The segments as attention reads them: decoding rows of about one length together, then each chunk alone."""
    parts = []
    for group in length_groups([each.slot for each in decode], [each.end for each in decode]):
        ends = [decode[row].end for row in group]
        parts.append(Part(group.start, decode[group.start].slot, len(group), 1, min(ends), max(ends)))
    offset = len(decode)
    for each in prefill:
        parts.append(Part(offset, each.slot, 1, each.length, each.end, each.end))
        offset += each.length
    return tuple(parts)


def _limits(config: Any) -> list[int]:
    """Positions that the model takes. Some rotary embeddings turn all positions of a forward otherwise once one of
    them is beyond the length of the first training, and a step holds those of many sequences: there it ends.
    """
    limits = [getattr(config, "max_position_embeddings", None)]
    rotary = getattr(config, "rope_parameters", None) or {}
    for each in (rotary, *rotary.values()):
        if isinstance(each, dict) and each.get("rope_type") == "longrope":
            limits.append(each.get("original_max_position_embeddings"))
    return [limit for limit in limits if limit]


def _eos_ids(model: Any) -> frozenset[int]:
    config = getattr(model, "generation_config", None)
    value = getattr(config, "eos_token_id", None)
    if value is None:
        return frozenset()
    return frozenset(value if isinstance(value, list | tuple) else [value])
