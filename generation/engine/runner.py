"""Carries out a step's plan on a transformers model. The only one that builds tensors for it; knows no text.

All that a step computes, decoding rows and chunks of prompts, is one forward of shape (1, T). The model
keeps no cache and builds no mask: our attention function writes and reads the slots.
"""

import inspect
from typing import Any

import torch

from generation.engine.attention import ATTENTION, PackedStep, PrefillSegment, running_step
from generation.engine.errors import ModelRefused
from generation.engine.kv_cache import SlotCache
from generation.engine.sampling import sample
from generation.engine.scheduler import Plan

# Lengths that attention reads are rounded up, so that their shapes repeat.
_LENGTH_STEP = 64

# In bfloat16 deep models reach 0.999; a wrong mask or bias leaves far less.
_LEAST_SIMILARITY = 0.98

_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})


class PackedRunner:
    """One model on one device. Raises ModelRefused for a model that it would run wrongly."""

    interval = 0.0

    def __init__(self, model: Any, slots: int, context: int) -> None:
        self._model = model.eval()
        self._call: Any = model  # the model, or its compiled forward
        self._attention = ATTENTION
        config = model.config.get_text_config()
        longest = getattr(config, "max_position_embeddings", None)
        self.context = min(context, longest) if longest else context
        self.vocab_size: int | None = model.get_input_embeddings().weight.shape[0]
        self.eos_ids = _eos_ids(model)
        self._device = model.device
        self._picks_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._cache = SlotCache(slots, self.context)
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
        for move in plan.moves:
            self._cache.move(move)
        for slot, _ in plan.admitted:
            self._cache.clear(slot)
        segments = plan.segments
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        prefill: list[PrefillSegment] = []
        last: list[int] = []  # where each sampling segment ends in the packed step
        for segment in segments:
            end = segment.start + segment.length
            if len(tokens) >= len(plan.decode):
                prefill.append(PrefillSegment(segment.slot, len(tokens), segment.length, segment.start))
            tokens += segment.sequence.ids[segment.start : end]
            positions += range(segment.start, end)
            slots += [segment.slot] * segment.length
            if segment.samples:
                last.append(len(tokens) - 1)
            self._cache.note_written(segment.slot, end)
        logits = self._forward(tokens, positions, slots, len(plan.decode), tuple(prefill), last)
        sampling = [segment.sequence for segment in plan.sampling]
        return sample(logits, sampling) if sampling else []

    def _forward(
        self,
        tokens: list[int],
        positions: list[int],
        slots: list[int],
        num_decoding: int,
        prefill: tuple[PrefillSegment, ...],
        last: list[int],
    ) -> torch.Tensor:  # (len(last), V)
        def tensor(numbers: list[int]) -> torch.Tensor:
            return torch.tensor(numbers, device=self._device)

        longest = max(positions[:num_decoding], default=0) + 1
        position_ids = tensor(positions)
        step = PackedStep(
            cache=self._cache,
            slots=tensor(slots),
            positions=position_ids,
            num_decoding=num_decoding,
            length=min(self.context, -(-longest // _LENGTH_STEP) * _LENGTH_STEP),
            prefill=prefill,
        )
        keep = tensor(last or [len(tokens) - 1])
        # Without this the head would compute V logits for every token of a prompt.
        picking = {"logits_to_keep": keep} if self._picks_logits else {}
        with running_step(step):
            output = self._call(
                input_ids=tensor(tokens)[None], position_ids=position_ids[None], use_cache=False, **picking
            )
        logits: torch.Tensor = output.logits[0]
        return logits if self._picks_logits else logits[keep]

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
                    segment = PrefillSegment(0, 0, length, chunk.start)
                    self._forward(ids[chunk], positions[chunk], [0] * length, 0, (segment,), [])
            ours = self._forward(ids[-1:], positions[-1:], [0], 1, (), [0])[0]
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


def _eos_ids(model: Any) -> frozenset[int]:
    config = getattr(model, "generation_config", None)
    value = getattr(config, "eos_token_id", None)
    if value is None:
        return frozenset()
    return frozenset(value if isinstance(value, list | tuple) else [value])
