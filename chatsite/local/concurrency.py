"""How many prompts `manage.py up` lets its workers answer at a time, and why."""

from generation import conf
from generation.benchmark import recommendation

DEFAULT = 4


def choose(given: int | None) -> tuple[int, str]:
    """The number and a line that says where it comes from: the option, the last benchmark, or neither."""
    if given is not None:
        return given, f"answers {given} at a time, as --concurrency says"
    path = conf.benchmark_file()
    record = None if path is None else recommendation.load(path)
    if record is None:
        return DEFAULT, f"answers {DEFAULT} at a time; `manage.py benchmark` finds out what this machine can do"
    if reason := record.why_not(conf.models().get(conf.default_model())):
        return DEFAULT, f"answers {DEFAULT} at a time: the benchmark in {path} {reason}"
    number = record.concurrency
    return number, f"answers {number} at a time, as the benchmark of {record.measured_at[:10]} recommends"
