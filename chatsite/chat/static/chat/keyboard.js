// What single keys do while nobody is writing, and the help that names them. Which key does what is said in the help
// (keys.html) alone. People who speak to their computer, or type by accident, can switch the single keys off.
import { setOpen } from "./sidebar.js";

const OFF = "tokenline:single-keys-off";
const STEPPED = "stepped-by-keyboard"; // over the way to another page
const WRITING = "textarea, select, [contenteditable], [role=menu] *, input:not([type=checkbox], [type=radio])";

const help = document.querySelector("#keys");
const list = document.querySelector("#conversations");
const scroller = document.querySelector("#scroller");
const prompt = document.querySelector("#prompt");
const rows = new Map([...help.querySelectorAll("[data-act]")].map((row) => [row.querySelector("kbd").textContent, row]));

const acts = {
  new: () => document.querySelector("#new").click(),
  search: () => reveal(document.querySelector("#search input")),
  list: () => reveal(list.querySelector("[aria-current]") ?? list.querySelector("a")),
  next: () => step(1),
  previous: () => step(-1),
  write: () => prompt.focus(),
  stop: () => document.querySelector("#stop").click(),
  copy: () => [...document.querySelectorAll('.reply:not([aria-busy]) [data-turn="copy"]')].at(-1)?.click(),
  end: () => document.querySelector("#jump").click(),
  help: () => (help.open ? help.close() : help.showModal()),
};
if (!prompt) for (const name of ["write", "stop", "copy", "end"]) delete acts[name];

export function startKeyboard() {
  for (const row of rows.values()) row.hidden = !acts[row.dataset.act];
  addEventListener("keydown", onKey);
  document.querySelector("#show-keys").addEventListener("click", () => {
    const account = document.querySelector("#account");
    account.open = false;
    account.querySelector("summary").focus(); // where the focus goes back to
    acts.help();
  });
  help.addEventListener("click", (event) => {
    if (event.target === help || event.target.closest("[data-close]")) help.close();
  });
  const single = help.querySelector("#single-keys");
  single.checked = !isOff();
  single.addEventListener("change", () => switchOff(!single.checked));
  // Whoever goes from one conversation to the next goes on with the same key.
  if (sessionStorage.getItem(STEPPED)) scroller.focus();
  sessionStorage.removeItem(STEPPED);
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || event.keyCode === 229 || event.repeat) return;
  if (event.key === "Escape" && event.target === prompt) return scroller.focus();
  if (event.altKey || event.metaKey) return;
  const act = wanted(event);
  if (!act || (help.open && act !== "help")) return;
  event.preventDefault();
  acts[act]();
}

function wanted(event) {
  if (event.ctrlKey) return event.key === "/" && "help";
  if (event.target.matches(WRITING) || document.querySelector("dialog[open]:not(#keys)") || isOff()) return null;
  const act = rows.get(letter(event))?.dataset.act;
  return acts[act] && act;
}

// By what is printed on the key; where that is no Latin letter, by where it is.
function letter({ key, code }) {
  return /^[^\x00-\x7f]$/.test(key) && code.startsWith("Key") ? code.slice(3).toLowerCase() : key;
}

// What stands at the side is behind a button on a phone.
function reveal(element) {
  if (!element) return;
  if (!element.checkVisibility({ visibilityProperty: true })) setOpen(true);
  element.focus();
}

function step(by) {
  const links = [...list.querySelectorAll("a[data-conversation]")];
  const at = links.findIndex((link) => link.hasAttribute("aria-current"));
  const to = at < 0 ? (by > 0 ? links[0] : null) : links[at + by];
  if (!to) return;
  sessionStorage.setItem(STEPPED, "1");
  location.assign(to.href);
}

function isOff() {
  try {
    return localStorage.getItem(OFF) !== null;
  } catch {
    return false;
  }
}

function switchOff(off) {
  try {
    if (off) localStorage.setItem(OFF, "1");
    else localStorage.removeItem(OFF);
  } catch {
    // Storage is forbidden: they stay as they are.
  }
}
