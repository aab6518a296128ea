"""This project's engine as a contestant, through the calls that a worker makes."""

import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence

from generation.benchmark.runs import Request, RunFailed, Stream, check
from generation.engine import Engine, Event, EventType, FinishReason, ModelSpec, SamplingParams, load_engine
from generation.engine import Sequence as EngineSequence
from generation.engine.engine import OnEvents

TEXT = (
    "The harbour lies quiet in the morning, and the fishing boats come home with the tide. An old woman mends her "
    "nets on the steps while children count the gulls. What will they bring today: herring, cod, or nothing at all? "
    "Nobody knows before the first baskets stand on the quay. Then the market begins, with loud voices and cold "
    "hands, and by noon everything is sold, washed and forgotten."
)


class Tokenline:
    name = "tokenline"

    def __init__(self, make: Callable[[OnEvents], Engine]) -> None:
        """``make`` an engine that hands its events to what it is given; it is closed with this contestant."""
        self.engine = make(self._take)
        stats = self.engine.stats()
        self.device, self.dtype = stats.device, stats.dtype
        self._numbers = itertools.count()
        self._streams: dict[Hashable, Stream] = {}  # by the sequence's identifier
        self._late_after = 0
        self._may_be_late = threading.Event()
        self.engine.start()

    @classmethod
    def load(cls, spec: ModelSpec, slots: int, log: Callable[[str], None]) -> "Tokenline":
        return cls(lambda take: load_engine(spec, slots=slots, on_events=take, log=log))

    def ids_of_text(self) -> list[int]:
        return self.engine.encode([{"role": "user", "content": TEXT}])

    def run(self, requests: Sequence[Request]) -> list[Stream]:
        streams = [Stream() for _ in requests]
        pairs = list(zip(requests, streams, strict=True))
        self._late_after = max(request.after for request in requests)
        self._may_be_late.clear()
        self._streams = {}
        sequences = [self._submit(request, stream) for request, stream in pairs if not request.after]
        if self._late_after:
            self._may_be_late.wait()
        sequences += [self._submit(request, stream) for request, stream in pairs if request.after]
        for sequence in sequences:
            end = sequence.wait()
            if end is None or end.reason is not FinishReason.LENGTH:
                raise RunFailed(f"{self.name}: {end and (end.error or end.reason)}")
        check(self.name, requests, streams)
        return streams

    def close(self) -> None:
        self.engine.close()

    def _submit(self, request: Request, stream: Stream) -> EngineSequence:
        number = next(self._numbers)
        self._streams[number] = stream
        params = SamplingParams(temperature=0, max_new_tokens=request.num_new, ignore_eos=True)
        stream.submitted_at = time.perf_counter()
        return self.engine.submit(request.prompt, params, identifier=number)

    def _take(self, events: list[Event]) -> None:
        now = time.perf_counter()
        ended = False
        for event in events:
            ended |= event.type is EventType.END
            stream = self._streams.get(event.identifier)
            if stream is not None and event.type is EventType.TOKEN:
                stream.arrivals += [now] * len(event.ids)
                stream.ids += event.ids
        if self._late_after and not self._may_be_late.is_set():
            enough = all(len(stream.arrivals) >= self._late_after for stream in list(self._streams.values()))
            if enough or ended:
                self._may_be_late.set()
