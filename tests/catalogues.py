"""The catalogues of texts: takes in what the code says now, compiles them, and tells what is not translated.

`python -m tests.catalogues` does all three; `python -m tests.catalogues xx` begins a language. Extraction needs GNU
gettext, the rest only Python.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polib

from tests.environment import ROOT
from tests.site import clean_environment

PACKAGES = ("chatsite", "generation")
DOMAINS = {"django": "html,txt,py", "djangojs": "js"}
PROGRAMS = ("xgettext", "msgmerge", "msguniq", "msgattrib")
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd%]|\{\w*\}")


def missing_programs() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program) is None]


def catalogues(root: Path = ROOT) -> list[Path]:
    return sorted(path for package in PACKAGES for path in (root / package / "locale").glob("*/LC_MESSAGES/*.po"))


def extract(root: Path, languages: list[str]) -> None:
    """Bring the .po files under `root` up to date with the code beside them."""
    for package in PACKAGES:
        (root / package / "locale").mkdir(exist_ok=True)
        for domain, extensions in DOMAINS.items():
            command = [sys.executable, "-P", "-m", "django", "makemessages", "-d", domain, "-e", extensions]
            command += ["--no-obsolete", "--no-location", "--no-wrap"]
            command += [f"--locale={language}" for language in languages]
            done = subprocess.run(command, cwd=root / package, env=clean_environment(), capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"makemessages failed:\n{done.stdout}{done.stderr}")
    for path in catalogues(root):
        _tidy(path)


def _tidy(path: Path) -> None:
    """Leave of the header what programs read: dates and empty names would differ at each call."""
    catalogue = polib.pofile(str(path), wrapwidth=0)
    catalogue.header, catalogue.metadata_is_fuzzy = "", False
    kept = ("MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Plural-Forms")
    read = {name: value for name, value in catalogue.metadata.items() if name in kept}
    catalogue.metadata = {"Language": path.parents[1].name} | read
    catalogue.save()


def compile_all() -> None:
    for path in catalogues():
        polib.pofile(str(path)).save_as_mofile(str(path.with_suffix(".mo")))


def faults(path: Path) -> Iterator[str]:
    """What keeps a catalogue's texts from being shown, or from being shown whole."""
    for entry in polib.pofile(str(path)):
        translated = list(entry.msgstr_plural.values()) or [entry.msgstr]
        originals = [each for each in (entry.msgid, entry.msgid_plural) if each]
        if entry.obsolete:
            continue
        if entry.fuzzy or not all(translated):
            yield f"{path.parents[1].name}, {path.stem}: {entry.msgid!r} is not translated"
            continue
        wanted = {frozenset(PLACEHOLDER.findall(text)) for text in originals}
        for text in translated:
            # A language may say the number of one thing in words.
            if frozenset(PLACEHOLDER.findall(text)) not in wanted:
                yield f"{path.parents[1].name}, {path.stem}: {entry.msgid!r} has other placeholders in {text!r}"


def main() -> None:
    languages = sorted({path.parents[1].name for path in catalogues()} | set(sys.argv[1:]))
    extract(ROOT, languages)
    compile_all()
    found = [fault for path in catalogues() for fault in faults(path)]
    print("\n".join(found) or "Every text is translated.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
