"""What a person sets, for one conversation or for each new one: a model, a system prompt, parameters.

A conversation begins with what its person set as a default and has its own from then on. What a frame says wins over
both. What is stored refuses no prompt: a model that is gone is the default one, a length is bounded by what holds now.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from chatsite.chat.models import MAX_MODEL_LENGTH, Conversation, PersonPreferences, Preferences
from chatsite.chat.preference_form import NAMES, BadPreferences, read_params, written_params
from generation import admission, conf

__all__ = [
    "BadPreferences",
    "Chosen",
    "bounded",
    "change",
    "from_json",
    "keep_as_default",
    "keep_for",
    "of_person",
    "offered",
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Whatever is empty is the site's own default."""

    model: str = ""
    system_prompt: str = ""
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, row: Preferences) -> "Chosen":
        return cls(row.model, row.system_prompt, row.params or {})

    @property
    def as_columns(self) -> dict[str, Any]:
        return asdict(self) | {"params": dict(self.params) or None}

    @property
    def as_written(self) -> dict[str, str]:
        """As the page's fields have it."""
        return {"model": self.model, "system_prompt": self.system_prompt, **written_params(self.params)}

    @property
    def as_json(self) -> dict[str, Any]:
        """What was set, with the protocol's names."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def first_messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []


def of_person(user_id: Any) -> Chosen:
    row = PersonPreferences.objects.filter(user=user_id).first()
    return Chosen.of(row) if row else Chosen()


def change(before: Chosen, written: Mapping[str, object], *, is_foreign: bool = False) -> Chosen:
    """With the fields named in `written`, texts or values as in the protocol. Raises BadPreferences.

    What comes from another site may name a model that this one hasn't.
    """
    errors: dict[str, str] = {}
    model, system_prompt = before.model, before.system_prompt
    params = dict(before.params)
    if "model" in written:
        model = _text(written["model"])
        if len(model) > MAX_MODEL_LENGTH or (model and not is_foreign and not offered(model)):
            errors["model"] = _("There is no such model here.")
    if "system_prompt" in written:
        system_prompt = _text(written["system_prompt"]).replace("\r\n", "\n")
        system_prompt = system_prompt if admission.is_visible(system_prompt) else ""
        if len(system_prompt) > (limit := conf.max_prompt_chars()):
            values = {"length": f"{len(system_prompt):,}", "limit": f"{limit:,}"}
            errors["system_prompt"] = _("This is %(length)s characters; at most %(limit)s fit.") % values
    try:
        named = {name: written[name] for name in NAMES if name in written}
        params = {**params, **read_params(named, is_foreign=is_foreign)}
    except BadPreferences as bad:
        errors |= bad.errors
    longest, shortest = params.get("max_new_tokens") or 0, params.get("min_new_tokens") or 0
    if 0 < longest < shortest and "min_new_tokens" not in errors:
        errors["min_new_tokens"] = _("The longest reply has %(longest)s.") % {"longest": longest}
    if errors:
        raise BadPreferences(errors)
    return Chosen(model, system_prompt, {name: value for name, value in params.items() if value is not None})


def from_json(value: object, before: Chosen, *, is_foreign: bool = False) -> Chosen:
    """`before` with what `as_json` gave, or a client made like it. Raises BadPreferences."""
    sent = value if isinstance(value, Mapping) else {"": value}
    params = sent.get("params") or {}
    known = {"model", "system_prompt", "params"}
    if not isinstance(params, Mapping) or not known.issuperset(sent) or not set(NAMES).issuperset(params):
        raise BadPreferences(
            {"settings": _("They hold model, system_prompt and params, and the protocol's parameters.")}
        )
    return change(before, {name: sent[name] for name in sent if name != "params"} | dict(params), is_foreign=is_foreign)


def keep_for(conversation: Conversation, chosen: Chosen) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(**chosen.as_columns)


def keep_as_default(user_id: Any, chosen: Chosen) -> None:
    PersonPreferences.objects.update_or_create(user_id=user_id, defaults=chosen.as_columns)


def offered(model: str | None) -> str | None:
    """The model if it is one of this site's."""
    return model if model and model in conf.models() else None


def bounded(stored: Mapping[str, Any], sent: Mapping[str, object], model: str | None) -> dict[str, object]:
    """The parameters of a job: what was sent, else what is stored, the latter within the lengths that hold now."""
    sent = {name: value for name, value in sent.items() if value is not None}
    params = {**stored, **sent}
    ceiling = conf.max_new_tokens()
    spec = conf.models().get(model or conf.default_model())
    if "max_new_tokens" in stored and "max_new_tokens" not in sent:
        params["max_new_tokens"] = min(stored["max_new_tokens"], ceiling)
    longest = params.get("max_new_tokens", spec.default_new_tokens if spec else ceiling)
    if "min_new_tokens" in stored and "min_new_tokens" not in sent and isinstance(longest, int):
        params["min_new_tokens"] = min(stored["min_new_tokens"], longest or ceiling, ceiling)
    return params


def _text(value: object) -> str:
    return admission.storable(value) if isinstance(value, str) else ""
