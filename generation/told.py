"""What people are told of a job that failed or expired, in their language.

A row, its stream's marker and the engine's errors say it in English, whatever the language of whoever looks: staff
read it, and a worker knows no language. Here are all of these sentences; a reader recognises the one that was filled
in and says it again in a language of its own. What isn't known here, such as a newer worker's words, stays as it is.
"""

import re

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

OUR_ERROR = _("Something went wrong while the reply was written.")
MODEL_ERROR = _("The model failed while writing this reply.")
WORKER_LOST = _("The worker died each time it tried this prompt.")
DEADLINE = _("The reply took longer than %(seconds)s s.")
EXPIRED = _("Its turn did not come within %(seconds)s s, the longest that a prompt may wait.")

NOT_OFFERED = _("The model %(model)s is no longer offered here.")
NOT_LOADED = _("The model %(model)s could not be loaded: %(reason)s.")
NOT_LOADED_FOR_STAFF = _("The model %(model)s could not be loaded %(details)s.")
NO_MEMORY = _("there is not enough memory for it")
ACCESS_REFUSED = _("access to its files was refused")
NOT_FETCHED = _("its files could not be fetched")
FILES_MISSING = _("its files are missing")
FILES_UNREADABLE = _("its files can't be read")
NOT_RUNNABLE = _("it can't be run in this way")
ASK_OPERATOR = _("the operator can see why")

# The engine's, which knows nothing of Django and therefore has them as its own.
_OF_THE_ENGINE = (
    _("prompt has %(num_tokens)s tokens; this model takes %(limit)s"),
    _("the prompt is empty"),
    _("the prompt holds characters that are not text"),
    _("the prompt holds ids outside the model's vocabulary of %(size)s"),
    _("a message needs text and one of the roles %(roles)s"),
    _("this model's chat template cannot take this conversation"),
    _("this model's chat template refuses the conversation: %(words)s"),
    _("unknown parameter: %(names)s"),
    _("%(name)s must be true or false, not %(value)s"),
    _("%(name)s must be a whole number, not %(value)s"),
    _("%(name)s must be a number, not %(value)s"),
    _("%(name)s must be from %(low)s to %(high)s, not %(value)s"),
    _("%(name)s must be above %(low)s and at most %(high)s, not %(value)s"),
    _("a larger number"),
    _("a smaller number"),
    _("stop must be a list of strings, not of %(value)s"),
    _("stop must be a list of strings, not %(value)s"),
    _("stop takes at most %(limit)s strings, not %(number)s"),
    _("stop must not hold an empty string"),
    _("a stop string has at most %(limit)s characters, not %(length)s"),
    _("logit_bias must map ids to numbers, not be %(value)s"),
    _("logit_bias holds id %(id)s; this model has %(size)s ids"),
)

SENTENCES = (
    OUR_ERROR,
    MODEL_ERROR,
    WORKER_LOST,
    DEADLINE,
    EXPIRED,
    NOT_OFFERED,
    NOT_LOADED,
    NOT_LOADED_FOR_STAFF,
    NO_MEMORY,
    ACCESS_REFUSED,
    NOT_FETCHED,
    FILES_MISSING,
    FILES_UNREADABLE,
    NOT_RUNNABLE,
    ASK_OPERATOR,
    *_OF_THE_ENGINE,
)
"""Of two that a text could be, the first counts."""


def _pattern(sentence: str) -> re.Pattern[str]:
    parts = re.split(r"%\((\w+)\)s", sentence)
    names, literals = parts[1::2], parts[0::2]
    groups = [f"(?P<{name}>.+?)" for name in names] + [""]
    return re.compile("".join(re.escape(text) + group for text, group in zip(literals, groups, strict=True)), re.DOTALL)


_PATTERNS = {sentence: _pattern(sentence) for sentence in SENTENCES}
_PHRASES = {sentence for sentence in SENTENCES if "%" not in sentence}


def told(message: str) -> str:
    """A sentence of a row or of the engine, in the language that is active here."""
    for sentence, pattern in _PATTERNS.items():
        if found := pattern.fullmatch(message):
            return gettext(sentence) % {name: _said(value) for name, value in found.groupdict().items()}
    return message


def _said(value: str) -> str:
    """A reason within a sentence is translated too; a figure or a name is not."""
    return gettext(value) if value in _PHRASES else value
