"""Signing in and out, one-time links, passwords."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from sesame.utils import get_query_string

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada() -> Any:
    return get_user_model().objects.create_user("ada", password="a long secret 42")


def test_it_signs_in_with_a_password_and_out_again(ada: Any) -> None:
    client = Client()
    response = client.post("/accounts/login/", {"username": "ada", "password": "a long secret 42"})
    assert (response.status_code, response["Location"]) == (302, "/")
    assert client.get("/").status_code == 200
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get("/").status_code == 302


def test_it_returns_to_the_page_that_asked_for_the_login(ada: Any) -> None:
    form = {"username": "ada", "password": "a long secret 42", "next": "/accounts/password/"}
    assert Client().post("/accounts/login/", form)["Location"] == "/accounts/password/"
    form["next"] = "https://evil.example/"
    assert Client().post("/accounts/login/", form)["Location"] == "/"


def test_it_says_that_the_password_is_wrong(ada: Any) -> None:
    response = Client().post("/accounts/login/", {"username": "ada", "password": "wrong"})
    assert response.status_code == 200
    assert 'role="alert"' in response.content.decode()


def test_it_signs_out_by_a_form_only(ada: Any) -> None:
    client = Client()
    client.force_login(ada, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get("/accounts/logout/").status_code == 405


def test_it_signs_in_by_a_link_once(ada: Any) -> None:
    link = "/accounts/link/" + get_query_string(ada)
    assert Client().get(link)["Location"] == "/"
    again = Client().get(link)
    assert again.status_code == 403
    assert "no longer works" in again.content.decode()


def test_it_lets_someone_who_came_by_a_link_set_a_first_password() -> None:
    person = get_user_model().objects.create_user("mina")
    client = Client()
    client.get("/accounts/link/" + get_query_string(person))
    assert "old_password" not in client.get("/accounts/password/").content.decode()
    words = {"new_password1": "quite long 4711", "new_password2": "quite long 4711"}
    assert client.post("/accounts/password/", words).status_code == 302
    person.refresh_from_db()
    assert person.check_password("quite long 4711")
    assert client.get("/").status_code == 200


def test_it_asks_for_the_old_password_before_it_takes_a_new_one(ada: Any) -> None:
    client = Client()
    client.force_login(ada, backend="django.contrib.auth.backends.ModelBackend")
    words = {"old_password": "wrong", "new_password1": "quite long 4711", "new_password2": "quite long 4711"}
    assert client.post("/accounts/password/", words).status_code == 200
    ada.refresh_from_db()
    assert ada.check_password("a long secret 42")
