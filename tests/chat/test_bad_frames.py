"""Wrong input on a socket: each gets its answer, the socket stays open, and nobody else notices."""

import json
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed

from tests.chat.sockets import Frame, Person, Socket, people, refused, rows
from tests.site import Site


@pytest.fixture(scope="module")
def ada(site: Site) -> Person:
    """Nothing is ever accepted of her, so one is enough for all."""
    return people(site)[0]


@pytest.fixture
def socket(ada: Person) -> Iterator[Socket]:
    with ada.socket() as socket:
        yield socket


ID = "9b3c7a1e-5a55-4a5e-8f2f-3f1b8d3f0a11"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "hello",
        "{",
        "[]",
        "null",
        "7",
        '"prompt"',
        '["prompt"]',
        "{}",
        '{"type": null}',
        '{"type": 7}',
        '{"type": ["prompt"]}',
        '{"type": "prompt"}',
        '{"type": "prompt", "id": 7, "text": "x"}',
        '{"type": "prompt", "id": "not-a-uuid", "text": "x"}',
        '{"type": "prompt", "id": {"a": 1}, "text": "x"}',
        f'{{"type": "prompt", "id": "{ID}"}}',
        f'{{"type": "prompt", "id": "{ID}", "text": null}}',
        f'{{"type": "prompt", "id": "{ID}", "text": ["x"]}}',
        f'{{"type": "prompt", "id": "{ID}", "text": "x", "parent": 7}}',
        f'{{"type": "prompt", "id": "{ID}", "text": "x", "model": 7}}',
        '{"type": "regenerate"}',
        f'{{"type": "regenerate", "id": "{ID}"}}',
        f'{{"type": "continue", "id": "{ID}", "message": []}}',
        '{"type": "follow"}',
        '{"type": "follow", "job": "x"}',
        '{"type": "follow", "job": null}',
        f'{{"type": "follow", "job": "{ID}", "after": -1}}',
        f'{{"type": "follow", "job": "{ID}", "after": 1.5}}',
        f'{{"type": "follow", "job": "{ID}", "after": "3"}}',
        f'{{"type": "follow", "job": "{ID}", "after": true}}',
        f'{{"type": "follow", "job": "{ID}", "after": {10**40}}}',
        f'{{"type": "follow", "job": "{ID}", "after": {"9" * 5000}}}',
        f'{{"type": "follow", "job": "{ID}", "after": 1e400}}',
        f'{{"type": "follow", "job": "{ID}", "origin": "x"}}',
        '{"type": "ack"}',
        f'{{"type": "ack", "job": "{ID}"}}',
        f'{{"type": "ack", "job": "{ID}", "seq": {2**64}}}',
        f'{{"type": "ack", "job": "{ID}", "seq": NaN}}',
        '{"type": "cancel"}',
        '{"type": "cancel", "job": 7}',
        '{"type": "cancel", "id": "x"}',
        "[" * 100_000,
        '{"type": "prompt", "params": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}",
        b"\x00\xff",
        b'{"type": "cancel"}',
    ],
    ids=lambda message: repr(message)[:60],
)
def test_it_answers_a_wrong_frame(socket: Socket, message: str | bytes) -> None:
    assert refused(socket, message)["code"] == "bad_frame"


@pytest.mark.parametrize(
    "kind",
    [
        *("chat.delta", "websocket.disconnect", "websocket.receive", "websocket.close", "__init__", "dispatch"),
        *("job.token", "job.changed", "conversation.job", "disconnect", "hello", "x" * 10_000, "", "\0", "\ud800"),
    ],
    ids=lambda kind: repr(kind)[:30],
)
def test_a_frames_type_reaches_no_method(socket: Socket, kind: str) -> None:
    """django/channels#2075: a client's "type" could name any handler of the consumer."""
    answer = refused(socket, json.dumps({"type": kind, "id": "mine", "job": str(uuid4()), "code": 1000}))
    assert (answer["code"], answer["ref"]) == ("bad_frame", "mine")


@pytest.mark.parametrize("text", ["", "   ", "\n\t\r", "\u200b\u200d\ufeff", "\u2060 \u00ad", "\u3000", "\x01\x02"])
def test_an_empty_prompt_is_refused(socket: Socket, text: str) -> None:
    """vllm-project/vllm#7283: an empty prompt reached the model and stopped all later requests."""
    answer = refused(socket, json.dumps({"type": "prompt", "id": ID, "text": text}))
    assert (answer["code"], answer["ref"]) == ("empty_prompt", ID)


def prompt_with(params: str) -> str:
    return f'{{"type": "prompt", "id": "{ID}", "text": "x", "params": {params}}}'


@pytest.mark.parametrize(
    "params",
    [
        *("7", '"x"', "[]", "true"),
        *('{"temperature": NaN}', '{"temperature": Infinity}', '{"temperature": -Infinity}', '{"temperature": -1}'),
        *('{"temperature": 3}', '{"temperature": "1"}', '{"temperature": true}', '{"temperature": [1]}'),
        *('{"top_p": -1}', '{"top_p": 0}', '{"top_p": 2}', '{"top_p": 1e999}', '{"min_p": -0.1}', '{"min_p": 2}'),
        *('{"top_k": -1}', '{"top_k": 1.5}', '{"top_k": 1e12}', '{"top_k": 100000000000000000000000}'),
        *('{"max_new_tokens": -1}', '{"max_new_tokens": 1e12}', '{"max_new_tokens": 1000000000000}'),
        *('{"max_new_tokens": "5"}', '{"max_new_tokens": false}', '{"min_new_tokens": 1000000}'),
        *('{"repetition_penalty": 0}', '{"repetition_penalty": NaN}', '{"presence_penalty": 5}'),
        *('{"frequency_penalty": -5}', '{"seed": -1}', '{"seed": 0.5}', f'{{"seed": {10**40}}}'),
        *('{"stop": ""}', '{"stop": [""]}', '{"stop": [1]}', '{"stop": {"a": 1}}', '{"stop": "x"}'),
        json.dumps({"stop": ["x"] * 9}),
        json.dumps({"stop": ["x" * 100_000]}),
        *('{"logit_bias": {"99999999": 1}}', '{"grammar": {"type": "regex", "value": "x"}}', '{"": 1}'),
        *('{"\\ud800": 1}', '{"seed": "\\ud800"}', '{"__class__": 1}', '{"parse": 1}'),
    ],
)
def test_a_bad_parameter_is_refused_by_name(socket: Socket, params: str) -> None:
    """vllm-project/vllm#5822: one bad parameter killed the engine for everybody."""
    answer = refused(socket, prompt_with(params))
    assert (answer["code"], answer["ref"]) == ("bad_params", ID)
    given = json.loads(params)
    if isinstance(given, dict):
        (name,) = given
        assert "\ud800" in name or name in answer["message"]


def test_a_prompt_may_be_as_long_as_the_limit_and_not_one_character_longer(site: Site) -> None:
    (bob,) = people(site)
    with bob.socket() as socket:
        limit = socket.hello["limits"]["max_prompt_chars"]
        answer = refused(socket, json.dumps({"type": "prompt", "id": ID, "text": "é" * (limit + 1)}))
        assert answer["code"] == "prompt_too_long"
        assert f"{limit + 1:,}" in answer["message"]
        assert f"{limit:,}" in answer["message"]
        at_limit = ("wörd " * limit)[:limit]
        queued = socket.prompt(at_limit, params={"max_new_tokens": 2})
        end = socket.end(queued["job"])
        # The model may have less room than the site allows characters: then it says so with its figures.
        assert end["type"] == "finished" or (end["code"] == "prompt_too_long" and "tokens" in end["message"])
        socket.still_answers()


def test_text_that_no_database_can_hold_is_kept_readable(site: Site) -> None:
    (bob,) = people(site)
    with bob.socket() as socket:
        client_id = str(uuid4())
        text = "nul:\\u0000 surrogate:\\ud800 smile:\\ud83d\\ude00"
        socket.raw(
            f'{{"type": "prompt", "id": "{client_id}", "text": "{text}",'
            ' "params": {"max_new_tokens": 3, "stop": ["\\ud800", "\\u0000"]}}'
        )
        queued = socket.until(lambda frame: frame["type"] in ("queued", "error"))
        assert queued["type"] == "queued", queued
        assert queued["text"] == "nul:\ufffd surrogate:\ufffd smile:😀"
        assert socket.end(queued["job"])["type"] == "finished"
        assert socket.text(queued["job"]) == queued["text"].partition("\ufffd")[0]
        (params,) = rows(site, "SELECT params FROM generation_job WHERE client_id = ?", client_id.replace("-", ""))[0]
        assert json.loads(params)["stop"] == ["\ufffd", "\ufffd"]


def test_an_unknown_model_is_refused(socket: Socket) -> None:
    for name in ("gpt-99", "\0", "\ud800", "mock:", "x" * 5000):
        answer = refused(socket, json.dumps({"type": "prompt", "id": ID, "text": "x", "model": name}))
        assert answer["code"] == "model_unavailable"


# Sizes.


def test_a_frame_too_large_is_closed_and_nobody_else_notices(site: Site) -> None:
    """django/daphne#582 (CVE-2026-44545): huge frames filled the server's memory."""
    ada, eve = people(site, 2)
    with ada.socket() as hers:
        job = hers.prompt("still going", params={"max_new_tokens": 100})["job"]
        with eve.socket() as socket:
            socket.raw(json.dumps({"type": "prompt", "id": ID, "text": "x" * 900_000}))
            assert socket.close_code() == 4413
        fragments = ("x" * 10 for _ in range(200_000))
        for message in ("x" * 20_000_000, fragments):
            with eve.socket() as socket:
                with suppress(ConnectionClosed):  # the server stops reading before all is sent
                    socket.connection.send(message)
                # What it never read resets the connection, at times before its close frame has come through.
                assert socket.close_code_if_told() in (1009, 4413, None)
        hers.end(job)
        assert [frame["seq"] for frame in hers.of(job, "token")] == list(range(1, 101))


def test_bad_input_disturbs_no_other_stream(site: Site) -> None:
    """vllm-project/vllm#5822: one person's bad parameter ended everybody's replies."""
    ada, eve = people(site, 2)
    with ada.socket() as hers, eve.socket() as socket:
        job = hers.prompt("on and on", params={"max_new_tokens": 100})["job"]
        for params in ('{"temperature": NaN}', '{"top_p": Infinity}', '{"max_new_tokens": 1e12}', '{"stop": [""]}'):
            assert refused(socket, prompt_with(params))["code"] == "bad_params"
        for message in ("{", "[]", '{"type": "__init__"}', b"\xff" * 1000):
            assert refused(socket, message)["code"] == "bad_frame"
        assert hers.end(job)["reason"] == "length"
        assert hers.text(job) == " ".join(["on and on"] * 33 + ["on"])


def test_frames_of_many_kinds_at_once_are_answered_in_order(socket: Socket) -> None:
    references = [str(uuid4()) for _ in range(200)]
    for reference in references:
        socket.send("nonsense", id=reference)
    assert [socket.error()["ref"] for _ in references] == references


@pytest.mark.parametrize(
    ("frame", "reference"),
    [
        ({"id": "a", "job": "b"}, "a"),
        ({"job": "b"}, "b"),
        ({"id": 7, "job": "b"}, "b"),
        ({"id": {"x": 1}}, None),
        ({}, None),
        ({"id": "\ud800"}, "\ufffd"),
        ({"id": "x" * 200}, "x" * 100),
    ],
)
def test_an_error_names_the_frame_it_answers(socket: Socket, frame: Frame, reference: str | None) -> None:
    assert refused(socket, json.dumps({"type": "nonsense", **frame}))["ref"] == reference
