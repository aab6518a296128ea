// The list of conversations: a drawer on a phone, older ones as one scrolls, a new entry when a conversation begins.
import { gettext, interpolate } from "./gettext.js";
import { startKeeping } from "./keeping.js";
import { trusted } from "./trusted.js";

const body = document.body;
const list = document.querySelector("#conversations");
const opener = document.querySelector("#open-sidebar");
const closer = document.querySelector("#close-sidebar");
const veil = document.querySelector("#veil");
const account = document.querySelector("#account");
const older = new IntersectionObserver(([entry]) => entry.isIntersecting && showOlder(), { root: list });

export function setOpen(open) {
  body.classList.toggle("sidebar-open", open);
  document.querySelector("#main").inert = open; // what lies behind the veil is out of the keyboard's reach too
  veil.hidden = !open;
  opener.setAttribute("aria-expanded", String(open));
  (open ? closer : opener).focus();
}

export function startSidebar() {
  opener.addEventListener("click", () => setOpen(true));
  closer.addEventListener("click", () => setOpen(false));
  veil.addEventListener("click", () => setOpen(false));
  matchMedia("(min-width: 768px)").addEventListener("change", () => body.classList.contains("sidebar-open") && setOpen(false));
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    account.open = false;
    if (body.classList.contains("sidebar-open")) setOpen(false);
  });
  addEventListener("click", (event) => account.contains(event.target) || (account.open = false));
  list.addEventListener("click", (event) => event.target.closest("#older") && showOlder());
  watchEnd();
  startKeeping(list, refresh);
}

function watchEnd() {
  older.disconnect();
  const button = list.querySelector("#older");
  if (button) older.observe(button);
}

async function page(after = "") {
  const response = await fetch(`${list.dataset.address}?after=${encodeURIComponent(after)}`, { redirect: "error" });
  if (!response.ok) throw new Error(`the list was refused: ${response.status}`);
  return new DOMParser().parseFromString(trusted(await response.text()), "text/html").body;
}

async function showOlder() {
  const button = list.querySelector("#older");
  if (!button || button.disabled) return;
  button.disabled = true;
  try {
    const found = await page(button.dataset.after);
    const focused = document.activeElement === button;
    button.remove();
    const first = found.querySelector("a");
    append(found);
    if (focused) first?.focus();
  } catch {
    button.disabled = false; // for another try by hand
    return;
  }
  watchEnd();
}

// A group that goes on on the next page stays one group; what is shown already, because its place changed, isn't twice.
function append(found) {
  for (const link of found.querySelectorAll("a")) {
    if (entryOf(link.dataset.conversation)) link.closest("li").remove();
  }
  for (const group of [...found.children]) {
    const known = group.dataset.group && list.querySelector(`section[data-group="${CSS.escape(group.dataset.group)}"]`);
    if (known) known.querySelector("ul").append(...group.querySelectorAll("li"));
    else list.append(group);
  }
}

export function entryOf(conversation) {
  return list.querySelector(`a[data-conversation="${CSS.escape(conversation)}"]`);
}

// The first page again, after something changed its place.
async function refresh() {
  const found = await page();
  list.replaceChildren(...found.childNodes);
  const { conversation } = body.dataset;
  if (conversation) entryOf(conversation)?.setAttribute("aria-current", "page");
  list.scrollTop = 0;
  watchEnd();
}

export function addConversation(conversation, title) {
  let today = list.querySelector('[data-group="Today"]');
  if (!today) {
    today = document.createElement("section");
    today.dataset.group = "Today";
    const heading = document.createElement("h2");
    heading.textContent = gettext("Today");
    today.append(heading, document.createElement("ul"));
    const pinned = list.querySelector('[data-group="Pinned"]');
    if (pinned) pinned.after(today);
    else list.prepend(today);
  }
  const item = document.querySelector("#conversation-item").content.cloneNode(true);
  const link = item.querySelector("a");
  link.href = `/c/${conversation}/`;
  link.dataset.conversation = conversation;
  link.textContent = link.title = title;
  link.setAttribute("aria-current", "page");
  item.querySelector(".options").setAttribute("aria-label", interpolate(gettext("Options of %(title)s"), { title }));
  today.querySelector("ul").prepend(item);
}
