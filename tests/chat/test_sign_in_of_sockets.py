"""Who may open a socket, from where, and what ends it while it is open."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from uuid import UUID, uuid4

import pytest
import redis
from websockets.exceptions import ConnectionClosed, InvalidStatus

from generation.delivery import stream
from tests.chat.sockets import Person, job_row, open_socket, people, rows
from tests.site import Site


def delete_the_session(person: Person) -> None:
    rows(person.site, "DELETE FROM django_session WHERE session_key = ?", person.session_key)


def expire_the_session(person: Person) -> None:
    expired = "UPDATE django_session SET expire_date = '2020-01-01 00:00:00' WHERE session_key = ?"
    rows(person.site, expired, person.session_key)


def deactivate(person: Person) -> None:
    rows(person.site, "UPDATE auth_user SET is_active = 0 WHERE username = ?", person.name)


def set_a_new_password(person: Person) -> None:
    rows(person.site, "UPDATE auth_user SET password = 'another hash' WHERE username = ?", person.name)


def sign_out_in_another_tab(person: Person) -> None:
    person.post("/accounts/logout/")


def change_the_password_in_another_tab(person: Person) -> None:
    person.post("/accounts/password/", new_password1="quite long 4711", new_password2="quite long 4711")


ENDINGS = [
    delete_the_session,
    expire_the_session,
    deactivate,
    set_a_new_password,
    sign_out_in_another_tab,
    change_the_password_in_another_tab,
]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("html", [False, True], ids=["tokens", "html"])
def test_a_sign_in_that_ends_closes_the_socket_and_its_tokens_stop(
    site: Site, ending: Callable[[Person], None], html: bool
) -> None:
    """django/channels#718, django/channels#1324: after signing out elsewhere the old socket kept on working."""
    (ada,) = people(site)
    with ada.socket(html=html) as socket:
        job = socket.prompt("private words", params={"max_new_tokens": 300})["job"]
        socket.until("html" if html else "token", job=job)
        ending(ada)
        assert socket.close_code() == 4401
    # The job goes on without its reader: leaving is not Stop.
    assert job_row(site, job)[0] == "running"
    assert max(frame["seq"] for frame in socket.of(job, "token", "html")) < 300


def test_a_frame_on_a_signed_out_socket_does_nothing(site: Site) -> None:
    (ada,) = people(site)
    with ada.socket() as socket:
        delete_the_session(ada)
        client_id = str(uuid4())
        with suppress(ConnectionClosed):  # closed by then
            socket.send("prompt", id=client_id, text="after the end")
        assert socket.close_code() == 4401
        assert not socket.frames[1:]
    assert rows(site, "SELECT count(*) FROM generation_job WHERE client_id = ?", UUID(client_id).hex) == [(0,)]


def test_other_sessions_of_the_same_person_stay_open(site: Site) -> None:
    (ada,) = people(site)
    link = site.manage("link", "--user", ada.name).stdout.strip()
    phone = Person(site, ada.name, link)
    with ada.socket() as desk, phone.socket() as mobile:
        ada.post("/accounts/logout/")
        assert desk.close_code() == 4401
        mobile.still_answers()


@pytest.mark.parametrize("cookie", [None, "nonsense", ""])
def test_it_closes_a_socket_without_a_session(site: Site, cookie: str | None) -> None:
    (ada,) = people(site)
    name = next(cookie.name for cookie in ada.cookies if cookie.name.startswith("sessionid"))
    headers = {} if cookie is None else {"Cookie": f"{name}={cookie}"}
    for conversation in ("new", str(uuid4())):
        with open_socket(site, conversation, **headers) as socket:
            assert socket.close_code() == 4401
            assert socket.frames == []


def test_an_address_that_is_no_conversation_is_refused(site: Site) -> None:
    (ada,) = people(site)
    for path in ("not-a-uuid", "new/x", "%00"):
        with pytest.raises((InvalidStatus, ConnectionClosed, EOFError)), open_socket(site, path, **ada.headers):
            pass
    with ada.socket() as socket:
        socket.still_answers()


# Origins.


def opens(person: Person, origin: str | None) -> bool:
    try:
        with open_socket(person.site, origin=origin, **person.headers) as socket:
            return bool(socket.next()["type"] == "hello")
    except InvalidStatus as refused:
        assert refused.response.status_code == 403
        return False


def test_it_accepts_the_sites_own_host_on_any_port(site: Site) -> None:
    """django/channels#2062: behind a proxy that drops the port from Host, the site's own page was refused."""
    (ada,) = people(site)
    host = site.url.rpartition(":")[0]
    assert opens(ada, site.url)
    assert opens(ada, f"{host}:8443")
    assert opens(ada, host)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1.evil.example",
        "http://evil.example:80",
        "http://127.0.0.1@evil.example",
        "file://127.0.0.1",
        "chrome-extension://127.0.0.1",
        "",
    ],
)
def test_it_refuses_another_origin_and_logs_it(site: Site, origin: str) -> None:
    """django/channels#929: any page could open a socket with its visitor's cookie, or a refusal left no word."""
    (ada,) = people(site)
    before = site.lines.count
    assert not opens(ada, origin or None)
    shown = origin or "none"
    line = site.lines.wait_for(lambda line: "refused" in line and "Origin" in line, after=before)
    assert shown in line


def test_it_opens_no_more_sockets_than_a_person_needs(site: Site) -> None:
    (ada,) = people(site)
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(ada.socket())
        with open_socket(site, **ada.headers) as one_more:
            assert one_more.close_code() == 4429
    with ada.socket() as socket:
        socket.still_answers()


def test_sockets_that_broke_do_not_count(site: Site) -> None:
    """After fifty broken sockets a person could open no other."""
    (ada,) = people(site)
    with ExitStack() as stack:
        first = stack.enter_context(ada.socket())
        queued = first.prompt("a", params={"max_new_tokens": 1})
        first.end(queued["job"])
        sockets = [stack.enter_context(ada.socket(queued["conversation"])) for _ in range(49)]
        with redis.Redis.from_url(site.up["redis_url"]) as client:
            broken = stream.wire({"type": "conversation.job", "job": "not one"})
            client.publish(f"asgi__group__conversation.{queued['conversation']}", broken)
        assert {socket.close_code() for socket in sockets} == {1011}
    with ada.socket(queued["conversation"]) as socket:
        socket.still_answers()
