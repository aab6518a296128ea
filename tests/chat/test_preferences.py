"""What people set: stored for a conversation and for each new one, checked, and applied to what is asked."""

import json
import uuid
from typing import Any

import pytest
from django.test import override_settings

from chatsite.chat import conversations, preferences
from chatsite.chat.conversations import Asked
from chatsite.chat.models import Conversation, Message, PersonPreferences
from chatsite.chat.preferences import Chosen
from generation.engine.params import MAX_STOP_STRINGS, RANGES
from generation.models import Job
from tests.chat.test_keeping_transfer import exported, fetched, send
from tests.chat.test_turning import end
from tests.chat.test_views import begin, page, person, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

TWO_MODELS = override_settings(GENERATION_MODELS="mock=mock: other=mock:")


def ask(conversation: Conversation | None = None, *, model: str | None = None, **params: object) -> Job:
    """A prompt through the conversation, or one that begins one."""
    asked = Asked(client_id=uuid.uuid4(), model=model, params=params)
    pk = conversation.pk if conversation else None
    return conversations.prompt(person(), pk, "hello", conversations.NEWEST, asked)


def change(conversation: Conversation, name: str = "ada", **fields: Any) -> Any:
    return signed_in(name).post(f"/c/{conversation.pk}/settings/", fields)


def default(name: str = "ada", **fields: Any) -> Any:
    return signed_in(name).post("/settings/", {"as_default": "1", **fields})


def read(conversation: Conversation) -> dict[str, str]:
    found: dict[str, str] = signed_in().get(f"/c/{conversation.pk}/settings/").json()["settings"]
    return found


# Stored and read again.


def test_what_is_set_is_read_again_as_it_was_written() -> None:
    conversation = begin()
    written = {
        "system_prompt": "Be brief.\nAlways.",
        "temperature": "0.25",
        "top_k": "40",
        "presence_penalty": "-1.5",
        "seed": str(2**63 - 1),
        "stop": "\\n\\n\nUser:\na\\\\b",
    }
    assert change(conversation, **written).status_code == 200
    assert {name: read(conversation)[name] for name in written} == written
    conversation.refresh_from_db()
    assert conversation.params == {
        "temperature": 0.25,
        "top_k": 40,
        "presence_penalty": -1.5,
        "seed": 2**63 - 1,
        "stop": ["\n\n", "User:", "a\\b"],
    }


def test_only_the_fields_sent_change() -> None:
    conversation = begin()
    change(conversation, temperature="0.5", top_k="5")
    change(conversation, system_prompt="Hi.", top_k="")
    conversation.refresh_from_db()
    assert (conversation.params, conversation.system_prompt) == ({"temperature": 0.5}, "Hi.")


def test_a_field_emptied_is_the_default_again() -> None:
    conversation = begin()
    change(conversation, temperature="0.5", system_prompt="Hi.")
    change(conversation, temperature=" ", system_prompt=" \n")
    conversation.refresh_from_db()
    assert (conversation.params, conversation.system_prompt) == (None, "")
    assert not any(read(conversation).values())


@pytest.mark.parametrize(("text", "value"), [("1,024", 1024), ("7", 7), (" 12 ", 12)])
def test_whole_numbers_are_read_as_people_write_them(text: str, value: int) -> None:
    conversation = begin()
    change(conversation, max_new_tokens=text)
    conversation.refresh_from_db()
    assert conversation.params == {"max_new_tokens": value}


def test_a_decimal_comma_is_a_point() -> None:
    conversation = begin()
    change(conversation, top_p="0,9")
    conversation.refresh_from_db()
    assert conversation.params == {"top_p": 0.9}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("temperature", "2.1"),
        ("temperature", "warm"),
        ("temperature", "nan"),
        ("top_p", "0"),
        ("top_k", "1.5"),
        ("seed", "-1"),
        ("seed", str(2**63)),
        ("seed", "9" * 5000),
        ("max_new_tokens", "2049"),
        ("stop", "\n".join("abcdefghi")),
        ("stop", "x" * 201),
        ("model", "unheard-of"),
        ("system_prompt", "x" * 100_001),
    ],
)
def test_a_wrong_value_is_refused_at_its_field_and_nothing_changes(name: str, text: str) -> None:
    conversation = begin()
    change(conversation, top_k="3")
    answer = change(conversation, min_p="0.1", **{name: text})
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [name]
    conversation.refresh_from_db()
    assert conversation.params == {"top_k": 3}


def test_the_refusal_tells_the_range_of_the_engine() -> None:
    within = RANGES["temperature"]
    error = change(begin(), temperature="9").json()["errors"]["temperature"]
    assert f"{within.low:g} to {within.high:g}" in error
    assert str(MAX_STOP_STRINGS) in change(begin(), stop="\n".join("abcdefghi")).json()["errors"]["stop"]


def test_the_shortest_reply_is_not_longer_than_the_longest() -> None:
    conversation = begin()
    change(conversation, max_new_tokens="10")
    answer = change(conversation, min_new_tokens="11")
    assert list(answer.json()["errors"]) == ["min_new_tokens"]


def test_the_page_shows_every_range_and_default() -> None:
    shown = page(begin())
    for name in RANGES:
        assert f'name="{name}"' in shown
    assert "0 to 2</span>" in shown and 'placeholder="0.7"' in shown
    assert "-2 to 2</span>" in shown and "above 0, at most 1</span>" in shown


@override_settings(GENERATION_MAX_NEW_TOKENS=77)
def test_the_longest_reply_is_the_sites() -> None:
    assert "0 to 77</span>" in page(begin())
    assert change(begin(), max_new_tokens="78").status_code == 400


# The person's default.


def test_a_new_conversation_begins_with_the_persons_default() -> None:
    default(system_prompt="Be kind.", temperature="0")
    job = ask()
    assert job.messages == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
    assert job.params["temperature"] == 0
    conversation = job.reply_part.message.conversation
    assert Chosen.of(conversation) == Chosen("", "Be kind.", {"temperature": 0.0})


def test_a_conversation_keeps_what_it_began_with() -> None:
    default(system_prompt="Be kind.")
    conversation = ask().reply_part.message.conversation
    default(system_prompt="Be cruel.")
    assert ask(conversation).messages[0]["content"] == "Be kind."


def test_a_default_is_kept_only_where_that_is_asked_for() -> None:
    conversation = begin()
    signed_in().post("/settings/", {"top_k": "2"})
    change(conversation, top_k="2")
    assert not PersonPreferences.objects.exists()
    answer = change(conversation, top_k="4", as_default="1").json()
    assert answer["defaults"]["top_k"] == "4"
    assert preferences.of_person(person().pk).params == {"top_k": 4}


def test_one_persons_settings_are_nobody_elses() -> None:
    conversation = begin()
    default(top_k="2")
    assert change(conversation, "eve", top_k="9").status_code == 404
    assert signed_in("eve").get(f"/c/{conversation.pk}/settings/").status_code == 404
    assert signed_in("eve").get("/settings/").json()["settings"]["top_k"] == ""


# What they do.


def test_the_system_prompt_is_the_first_message_of_every_later_reply() -> None:
    conversation = begin()
    first = end(ask(conversation), "HELLO", finish_reason="length")
    change(conversation, system_prompt="Be brief.")
    again = conversations.regenerate(person(), conversation.pk, first.pk, Asked(uuid.uuid4(), None, {}))
    more = conversations.go_on(person(), conversation.pk, first.pk, Asked(uuid.uuid4(), None, {}))
    for job in (ask(conversation), again, more):
        assert job.messages[0] == {"role": "system", "content": "Be brief."}
        assert [message["role"] for message in job.messages].count("system") == 1


def test_a_frame_has_the_last_word() -> None:
    conversation = begin()
    change(conversation, temperature="0.5", top_k="5")
    job = ask(conversation, temperature=1.5, top_k=None)
    assert (job.params["temperature"], job.params["top_k"]) == (1.5, 5)


@TWO_MODELS
def test_the_chosen_model_answers_unless_a_frame_names_another() -> None:
    conversation = begin()
    change(conversation, model="other")
    assert ask(conversation).model == "other"
    assert ask(conversation, model="mock").model == "mock"
    reply = end(ask(conversation), "HELLO")
    again = conversations.regenerate(person(), conversation.pk, reply.pk, Asked(uuid.uuid4(), None, {}))
    assert again.model == "other"


@TWO_MODELS
def test_a_reply_is_continued_by_its_own_model_where_none_was_chosen() -> None:
    conversation = begin()
    reply = end(ask(conversation, model="other", temperature=0.1), "HELLO", finish_reason="length")
    more = conversations.go_on(person(), conversation.pk, reply.pk, Asked(uuid.uuid4(), None, {}))
    assert (more.model, more.params["temperature"]) == ("other", 0.1)


def test_a_model_that_is_no_longer_offered_is_the_default_one() -> None:
    conversation = begin()
    with TWO_MODELS:
        change(conversation, model="other")
    assert ask(conversation).model == "mock"


def test_stored_lengths_are_bounded_by_what_holds_now() -> None:
    """What was allowed when it was set refuses no prompt later."""
    conversation = begin()
    change(conversation, max_new_tokens="2000", min_new_tokens="1000")
    with override_settings(GENERATION_MAX_NEW_TOKENS=100):
        job = ask(conversation)
        assert (job.params["max_new_tokens"], job.params["min_new_tokens"]) == (100, 100)
        assert ask(conversation, max_new_tokens=50).params["min_new_tokens"] == 50
        assert change(conversation, top_k="1").status_code == 200
    change(conversation, max_new_tokens="")
    job = ask(conversation)
    assert job.params["min_new_tokens"] == job.params["max_new_tokens"] == 64  # the model's own length


# Out and in.


def test_an_export_carries_the_settings() -> None:
    conversation = begin()
    change(conversation, system_prompt="Be brief.", stop="a\\nb", min_p="0.5", max_new_tokens="2048")
    content = fetched("/conversations/export/json/")
    with override_settings(GENERATION_MAX_NEW_TOKENS=100):
        assert send(content, "eve").json() == {"conversations": 1}
    conversation.refresh_from_db()
    assert Chosen.of(Conversation.objects.get(user=person("eve"))) == Chosen.of(conversation)
    assert Chosen.of(conversation).params["stop"] == ["a\nb"]


def test_an_import_takes_a_model_that_is_not_here() -> None:
    file = exported()
    file["conversations"][0]["settings"] = {"model": "elsewhere"}
    send(json.dumps(file))
    conversation = Conversation.objects.get()
    assert conversation.model == "elsewhere"
    assert ask(conversation).model == "mock"


@pytest.mark.parametrize(
    "settings",
    ["none", [1], {"params": {"temperature": 3}}, {"params": {"tempreature": 1}}, {"params": 5}, {"colour": "red"}],
)
def test_an_import_with_wrong_settings_takes_nothing_in(settings: object) -> None:
    file = exported()
    file["conversations"][0]["settings"] = settings
    answer = send(json.dumps(file))
    assert answer.status_code == 400
    assert "settings" in answer.json()["error"]
    assert not Conversation.objects.exists() and not Message.objects.exists()
