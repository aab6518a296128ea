"""The site's settings, with the language of brackets as one more; its catalogues lie in the site's folder."""

from chatsite.settings import *  # noqa: F403
from chatsite.settings import LANGUAGES as REAL
from chatsite.settings import VAR

LANGUAGES = [*REAL, ("eo", "Esperanto")]
LOCALE_PATHS = [VAR / "brackets"]
