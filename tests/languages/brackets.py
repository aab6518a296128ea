"""Writes the catalogues of brackets, and finds on a page what stands outside of any."""

import re
from pathlib import Path

import django
import polib
from django.contrib import auth
from playwright.sync_api import Page

from tests import catalogues

LANGUAGE = "eo"
HEADER = {"Content-Type": "text/plain; charset=utf-8", "Plural-Forms": "nplurals=2; plural=(n != 1);"}
BRACKETED = re.compile("⟦[^⟦⟧]*⟧")
CODE = re.compile(r"[a-z]+(_[a-z]+)+")

OWN = """.text, .block, .face, #account .name, #conversations a, .rename, #model, #set-model, #chooser strong, kbd,
  #live, .languages, .excerpt, #results strong, body:not([data-conversation=""]) #title"""
"""What people, models and operators wrote or named; and names of keys."""

TEXTS = """(own) => {
  const isOwn = (element) => element.closest(own) && !element.closest(".copy");
  const heading = document.querySelector("#title");
  const found = heading && isOwn(heading) ? [] : [document.title];
  const read = (root) => {
    const nodes = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    while (nodes.nextNode()) {
      const node = nodes.currentNode;
      if (node.nodeType === Node.TEXT_NODE) {
        const around = node.parentElement ?? document.body;
        if (!around.closest("script, style") && !isOwn(around)) found.push(node.data);
        continue;
      }
      if (node.matches("template")) read(node.content);
      if (isOwn(node)) continue;
      for (const name of ["aria-label", "title", "placeholder", "alt"]) found.push(node.getAttribute(name) ?? "");
    }
  };
  read(document.body);
  return found;
}"""


def write(folder: Path) -> None:
    originals = {domain: [] for domain in catalogues.DOMAINS}  # type: dict[str, list[polib.POEntry]]
    for path in catalogues.catalogues():
        originals[path.stem] += polib.pofile(str(path))
    for package, place in ((django, "conf"), (auth, "")):
        path = Path(package.__file__).parent / place / "locale" / "ja" / "LC_MESSAGES" / "django.mo"
        originals["django"] += polib.mofile(str(path))
    for domain, entries in originals.items():
        catalogue = polib.POFile()
        catalogue.metadata = HEADER
        for entry in entries:
            one, many = f"⟦{entry.msgid}⟧", f"⟦{entry.msgid_plural}⟧"
            bracketed = polib.POEntry(msgctxt=entry.msgctxt, msgid=entry.msgid, msgid_plural=entry.msgid_plural)
            if entry.msgid_plural:
                bracketed.msgstr_plural = {0: one, 1: many}
            else:
                bracketed.msgstr = one
            catalogue.append(bracketed)
        target = folder / LANGUAGE / "LC_MESSAGES" / f"{domain}.mo"
        target.parent.mkdir(parents=True, exist_ok=True)
        catalogue.save_as_mofile(str(target))


def bare(text: str) -> str:
    """What is left of a text without all that stands in brackets and without the product's name; "" if no letter is."""
    rest = re.sub("<[^<>]*>", "", text).replace("Tokenline", "")
    while BRACKETED.search(rest):
        rest = BRACKETED.sub("", rest)
    return rest.strip() if re.search(r"[^\W\d_]", rest) and not CODE.fullmatch(rest) else ""


def unbracketed(page: Page) -> list[str]:
    """Every text of the page that is in no catalogue, hidden ones and attributes included."""
    return sorted({text.strip() for text in page.evaluate(TEXTS, OWN) if bare(text)})
