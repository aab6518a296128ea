"""Other ways to run the same model on the same machine, on a copy of it as transformers loads it.

They answer as greedily as this project's engine, so that in float32 all give the same ids.
"""

import inspect
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from generation.benchmark.runs import Contestant, Request, RunFailed, Stream, check
from generation.engine import ModelSpec

LONGEST_WAIT_SECONDS = 5.0

PAGE_TOKENS = 256
"""Tokens of one page in the manager's cache, transformers' own default."""


def missing(name: str) -> str:
    """Why this peer cannot take part here; empty where it can."""
    if not all(map(find_spec, ("torch", "transformers"))):
        return "transformers is not installed"
    if name == ManagerPeer.key:
        import transformers

        if not hasattr(transformers, "ContinuousBatchingConfig"):
            return f"transformers {transformers.__version__} has no continuous batching"
    return ""


def load_copy(spec: ModelSpec, log: Callable[[str], None]) -> Any:
    """The model in the same dtype and on the same device as ours, unquantized and untouched by our engine."""
    from generation.engine.loading import load_model

    plain = {name: value for name, value in spec.options.items() if name not in ("quantization", "compile")}
    model, _ = load_model(replace(spec, options=plain), log)
    model.generation_config.eos_token_id = None  # all answer as many tokens as they are asked for
    model.generation_config.pad_token_id = 0
    return model.eval()


class ManagerPeer:
    """transformers' ContinuousBatchingManager: continuous batching over a paged cache."""

    key = "manager"
    name = "transformers' manager"

    def __init__(self, model: Any, num_sequences: int, longest: int) -> None:
        import torch
        from transformers import ContinuousBatchingConfig, GenerationConfig

        generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        # By default its cache takes the larger part of all memory. One page more for each, so that none ever waits.
        num_pages = num_sequences * (-(-longest // PAGE_TOKENS) + 1)
        pages = ContinuousBatchingConfig(num_blocks=num_pages, page_size=PAGE_TOKENS)
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.WARNING)
        self._model = model
        self._own_attention = model.config._attn_implementation
        with torch.inference_mode():  # its thread takes this over
            self._manager = model.init_continuous_batching(generation, pages)
            self._attention = model.config._attn_implementation
            self._manager.start()
        self._use(self._own_attention)

    def run(self, requests: Sequence[Request]) -> list[Stream]:
        self._use(self._attention)
        try:
            streams = self._run(requests)
        finally:
            self._use(self._own_attention)
        check(self.name, requests, streams)
        return streams

    def close(self) -> None:
        self._manager.stop(hard_stop=True)

    def _run(self, requests: Sequence[Request]) -> list[Stream]:
        streams = [Stream() for _ in requests]
        late_after = max(request.after for request in requests)
        for index, request in enumerate(requests):
            if not request.after:
                self._submit(index, request, streams[index], streaming=bool(late_after))
        num_left = len(requests)
        while num_left:
            output = self._manager.get_result(timeout=1.0)
            if output is None:
                if not self._manager.is_running():
                    raise RunFailed(f"{self.name} ended: {self._manager.background_thread_status.fatal_error}")
                continue
            if output.error:
                raise RunFailed(f"{self.name}: {output.error}")
            stream = streams[int(output.request_id)]
            stream.arrivals, stream.ids = output.timestamps, output.generated_tokens
            num_left -= output.is_finished()
            first = [stream for stream, request in zip(streams, requests, strict=True) if not request.after]
            if late_after and all(len(stream.arrivals) >= late_after for stream in first):
                late_after = 0
                for index, request in enumerate(requests):
                    if request.after:
                        self._submit(index, request, streams[index], streaming=True)
        return streams

    def _submit(self, index: int, request: Request, stream: Stream, *, streaming: bool) -> None:
        stream.submitted_at = time.perf_counter()
        self._manager.add_request(
            list(request.prompt),
            request_id=str(index),
            max_new_tokens=request.num_new,
            streaming=streaming,
            record_timestamps=True,  # by the same clock as ours, in its own thread
            eos_token_id=-1,
        )

    def _use(self, attention: str) -> None:
        if self._model.config._attn_implementation != attention:
            self._model.set_attn_implementation(attention)


class ThreadsPeer:
    """A thread per prompt that calls ``generate``, as most people would write it."""

    key = "threads"
    name = "a generate per thread"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()

    def run(self, requests: Sequence[Request]) -> list[Stream]:
        streamers = [_Streamer(self._closed) for _ in requests]
        self._threads = [
            threading.Thread(target=self._generate, args=(request, streamer), daemon=True)
            for request, streamer in zip(requests, streamers, strict=True)
        ]
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        for streamer in streamers:
            if streamer.error is not None:
                raise RunFailed(f"{self.name}: {streamer.error}") from streamer.error
        streams = [streamer.stream for streamer in streamers]
        check(self.name, requests, streams)
        return streams

    def close(self) -> None:
        """They end at their next token; an interpreter that leaves while they compute would crash."""
        self._closed.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(LONGEST_WAIT_SECONDS)

    def _generate(self, request: Request, streamer: "_Streamer") -> None:
        import torch

        streamer.stream.submitted_at = time.perf_counter()
        try:
            ids = torch.tensor([request.prompt], device=self._model.device)
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request.num_new,
                do_sample=False,
                streamer=streamer,
            )
        except Exception as error:  # it ends this thread alone; whoever started it raises
            streamer.error = error


class _Streamer:
    """What ``generate`` hands its ids to: the prompt's first, then each token's."""

    def __init__(self, closed: threading.Event) -> None:
        self.stream = Stream()
        self.error: Exception | None = None
        self._closed = closed
        self._is_prompt = True

    def put(self, ids: Any) -> None:
        if self._closed.is_set():
            raise RunFailed("interrupted")
        if not self._is_prompt:
            self.stream.arrivals.append(time.perf_counter())
            self.stream.ids += ids.tolist()
        self._is_prompt = False

    def end(self) -> None:
        pass


class TurnsPeer:
    """One token of each prompt in turn, each with a cache of its own: ChatStream's way."""

    key = "turns"
    name = "one token in turn"

    def __init__(self, model: Any) -> None:
        self._model = model
        picks = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._options = {"logits_to_keep": 1} if picks else {}

    def run(self, requests: Sequence[Request]) -> list[Stream]:
        import torch
        from transformers import DynamicCache

        started = time.perf_counter()
        streams = [Stream(submitted_at=started) for _ in requests]
        with torch.inference_mode():
            caches = [DynamicCache(config=self._model.config) for _ in requests]
            inputs = [list(request.prompt) for request in requests]
            for turn in range(max(request.num_new for request in requests)):
                for index, request in enumerate(requests):
                    if turn < request.num_new:
                        inputs[index] = [self._next(inputs[index], caches[index])]
                        streams[index].arrivals.append(time.perf_counter())
                        streams[index].ids += inputs[index]
        return streams

    def close(self) -> None:
        pass

    def _next(self, ids: list[int], cache: Any) -> int:
        import torch

        input_ids = torch.tensor([ids], device=self._model.device)
        output = self._model(input_ids=input_ids, cache=cache, use_cache=True, **self._options)
        token_id: int = output.logits[0, -1].argmax().item()
        return token_id


PEERS: tuple[type[ManagerPeer] | type[ThreadsPeer] | type[TurnsPeer], ...] = (ManagerPeer, ThreadsPeer, TurnsPeer)


def make(key: str, model: Any, num_sequences: int, longest: int) -> Contestant:
    """A peer for so many sequences of at most ``longest`` tokens. Raises what it says against the model."""
    if key == ManagerPeer.key:
        return ManagerPeer(model, num_sequences, longest)
    return ThreadsPeer(model) if key == ThreadsPeer.key else TurnsPeer(model)
