"""Nothing that people read is left untranslated, and what is compiled is what was written."""

import ast
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.utils.translation import override

from generation.told import SENTENCES, told
from tests import catalogues
from tests.environment import ROOT

LANGUAGES = [code for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE]
SAID_BY_THE_ENGINE = {"PromptError", "PromptTooLong", "ParamsError"}


def texts_of(entry: polib.POEntry) -> tuple[str | None, str, str, list[str]]:
    return entry.msgctxt, entry.msgid, entry.msgid_plural, list(entry.msgstr_plural.values()) or [entry.msgstr]


def test_every_text_is_translated(tmp_path: Path) -> None:
    """`python -m tests.catalogues` takes in new texts and says which ones wait for a translator."""
    if missing := catalogues.missing_programs():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"gettext is missing: {', '.join(missing)}")
    for package in catalogues.PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    catalogues.extract(tmp_path, LANGUAGES)
    found = catalogues.catalogues(tmp_path)
    assert len(found) == 3 * len(LANGUAGES)
    assert [fault for path in found for fault in catalogues.faults(path)] == []
    for path in found:
        known = polib.pofile(str(ROOT / path.relative_to(tmp_path)))
        assert [entry.msgid for entry in known] == [entry.msgid for entry in polib.pofile(str(path))], "not up to date"


@pytest.mark.parametrize("path", catalogues.catalogues(), ids=lambda path: "-".join(path.parts[-5:]))
def test_what_is_compiled_is_what_was_written(path: Path) -> None:
    written = [texts_of(entry) for entry in polib.pofile(str(path)) if entry.translated()]
    compiled = [texts_of(entry) for entry in polib.mofile(str(path.with_suffix(".mo")))]
    assert sorted(written, key=repr) == sorted(compiled, key=repr), "python -m tests.catalogues compiles it"


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_and_scripts_say_the_same_in_the_same_words(language: str) -> None:
    """A reply's end is worded by the script, and by the server once the page is loaded again."""
    folder = ROOT / "chatsite" / "locale" / language / "LC_MESSAGES"
    said = {}
    for domain in catalogues.DOMAINS:
        for entry in polib.pofile(str(folder / f"{domain}.po")):
            assert said.setdefault(entry.msgid, texts_of(entry)) == texts_of(entry)


def filled(sentence: str) -> str:
    return catalogues.PLACEHOLDER.sub("17", sentence)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_of_a_row_is_said_again_in_the_readers_language(sentence: str) -> None:
    with override("ja"):
        expected = catalogues.PLACEHOLDER.sub("17", polib_ja()[sentence])
        assert told(filled(sentence)) == expected
    with override("en"):
        assert told(filled(sentence)) == filled(sentence)


def polib_ja() -> dict[str, str]:
    path = ROOT / "generation" / "locale" / "ja" / "LC_MESSAGES" / "django.po"
    return {entry.msgid: entry.msgstr for entry in polib.pofile(str(path))}


def test_a_reason_within_a_sentence_is_translated_and_a_name_is_not() -> None:
    with override("ja"):
        assert "ファイルがありません" in told("The model its files could not be loaded: its files are missing.")
        assert "モデルits filesを" in told("The model its files could not be loaded: its files are missing.")


def test_words_that_nobody_foresaw_stay_as_they_are() -> None:
    with override("ja"):
        assert told("A newer worker says it so.\nOn two lines.") == "A newer worker says it so.\nOn two lines."


def parsed(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def calls_of(tree: ast.Module, names: set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def literal(node: ast.expr) -> str:
    """What the code says itself, with 17 for whatever is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "17" for part in node.values)
    return ""


def said_by_the_engine() -> Iterator[str]:
    """The texts of its errors for people, those that a function of the same file words included."""
    for _, tree in parsed(ROOT / "generation" / "engine"):
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in SAID_BY_THE_ENGINE:
                inherited = [each for each in ast.walk(node) if isinstance(each, ast.Call) and each.args]
                yield from filter(None, (literal(each.args[0]) for each in inherited))
        for call in calls_of(tree, SAID_BY_THE_ENGINE):
            said = call.args[0]
            if isinstance(said, ast.Call) and isinstance(said.func, ast.Name) and said.func.id in functions:
                worded = ast.walk(functions[said.func.id])
                yield from (literal(each.value) for each in worded if isinstance(each, ast.Return) and each.value)
            else:
                yield literal(said)


def test_every_error_of_the_engine_that_people_read_is_known() -> None:
    texts = [text for text in said_by_the_engine() if text]
    assert len(texts) > 20
    with override("ja"):
        assert [text for text in texts if told(text) == text] == []


def test_no_refusal_is_worded_without_a_translation() -> None:
    refusals = {"Refused": 1, "BadFile": 0, "BadTitle": 0, "_bad": 0, "_plain": 0}
    bare = [
        f"{path.name}: {text}"
        for package in catalogues.PACKAGES
        for path, tree in parsed(ROOT / package)
        for call in calls_of(tree, set(refusals))
        if isinstance(call.func, ast.Name)
        for argument in call.args[refusals[call.func.id] :][:1]
        if (text := literal(argument)) and not text.islower()
    ]
    assert bare == []


LOUD = re.compile(r"(?:aria-label|title|placeholder|alt)=\"([^\"]*)\"")


@pytest.mark.parametrize("path", sorted((ROOT / "chatsite").rglob("templates/**/*.html")), ids=lambda path: path.name)
def test_no_template_says_anything_without_a_translation(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"{% (blocktranslate)\b.*?{% endblocktranslate %}|{%.*?%}|{{.*?}}|{#.*?#}", "", text, flags=re.DOTALL)
    text = re.sub(r"<kbd>[^<]*</kbd>", "", text)  # what is printed on a key
    said = [*LOUD.findall(text), *re.sub(r"<[^>]*>", "\n", text).split("\n")]
    left = [each.strip() for each in said if re.search(r"[^\W\d_]", each.replace("Tokenline", ""))]
    assert left == []


def test_no_script_says_anything_without_a_translation() -> None:
    """Whatever has a blank and begins like a sentence; single words may be names of keys and headers."""
    folder = ROOT / "chatsite" / "locale" / LANGUAGES[0] / "LC_MESSAGES"
    entries = polib.pofile(str(folder / "djangojs.po"))
    known = {text for entry in entries for text in (entry.msgid, entry.msgid_plural)}
    bare = [
        f"{path.name}: {said}"
        for path in (ROOT / "chatsite").rglob("static/**/*.js")
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.strip().startswith("//")
        for said in re.findall(r"\"([^\"]+)\"|`([^`]+)`", line)
        for said in filter(None, said)
        if re.match(r"[A-Z“].* ", said) and said not in known
    ]
    assert bare == []
