// A menu for each conversation in the list: rename, pin, save as a file, delete; and taking a file in.
import { gettext, interpolate, ngettext } from "./gettext.js";
import { toast } from "./toast.js";

const UNDO = 10_000;
const DELETED = "deleted-conversation"; // over the way to another page
const csrf = () => document.querySelector("#account [name=csrfmiddlewaretoken]").value;

let list;
let refresh;
let menu = null; // the one that is open
let menuButton = null;

export function startKeeping(conversations, refreshList) {
  list = conversations;
  refresh = refreshList;
  list.addEventListener("click", (event) => {
    const button = event.target.closest(".options");
    if (!button) return;
    const again = button === menuButton;
    close();
    if (!again) open(button, event.detail === 0);
  });
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || !event.target.matches(".options")) return;
    event.preventDefault();
    open(event.target, true);
  });
  addEventListener("click", (event) => {
    if (menu && !menu.contains(event.target) && !menuButton.contains(event.target)) close();
  });
  // Where the menu was opened by the pointer the focus isn't in it.
  document.addEventListener("keydown", (event) => {
    if (!menu || event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    close(true);
  });
  list.addEventListener("scroll", () => close(), { passive: true });
  addEventListener("resize", () => close());
  startImport();
  offerLastUndo();
}

async function post(address, fields = {}) {
  const form = fields instanceof FormData ? fields : new URLSearchParams(fields);
  const response = await fetch(address, {
    method: "POST",
    headers: { "X-CSRFToken": csrf() },
    body: form,
    redirect: "error",
  });
  const json = response.headers.get("Content-Type")?.startsWith("application/json");
  const answer = json ? await response.json() : {};
  if (!response.ok) throw new Error(answer.error ?? (response.status === 404 ? gettext("There is no such conversation.") : ""));
  return answer;
}

const complain = (what) => (error) => {
  const words = error instanceof TypeError || !error.message ? gettext("The site doesn't answer as it should.") : error.message;
  toast(`${what} ${words}`);
};

// The menu

function open(button, byKeyboard) {
  close();
  const item = button.closest("li");
  const link = item.querySelector("a");
  const pinned = item.closest("section").dataset.group === "Pinned";
  menu = document.createElement("div");
  menu.className = "options-menu";
  menu.setAttribute("role", "menu");
  menu.setAttribute("aria-label", button.getAttribute("aria-label"));
  const address = link.getAttribute("href");
  menu.append(
    choice(gettext("Rename"), () => rename(item, link)),
    choice(pinned ? gettext("Unpin") : gettext("Pin"), () => pin(link, !pinned)),
    fileLink(gettext("Export as Markdown"), `${address}export/markdown/`),
    fileLink(gettext("Export as JSON"), `${address}export/json/`),
    choice(gettext("Delete"), () => remove(item, link), "danger"),
  );
  menu.addEventListener("keydown", onMenuKey);
  item.append(menu);
  place(button);
  menuButton = button;
  button.setAttribute("aria-expanded", "true");
  if (byKeyboard) menu.firstElementChild.focus();
}

function close(focus = false) {
  if (!menu) return;
  menu.remove();
  menuButton.setAttribute("aria-expanded", "false");
  if (focus) menuButton.focus();
  menu = menuButton = null;
}

function choice(text, act, className = "") {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.className = className;
  button.tabIndex = -1;
  button.setAttribute("role", "menuitem");
  button.addEventListener("click", () => {
    close(true);
    act();
  });
  return button;
}

function fileLink(text, address) {
  const link = document.createElement("a");
  link.href = address;
  link.download = "";
  link.textContent = text;
  link.tabIndex = -1;
  link.setAttribute("role", "menuitem");
  link.addEventListener("click", () => setTimeout(() => close(true)));
  return link;
}

// The list scrolls and would cut the menu off: it stands over everything, below its button or above it.
function place(button) {
  const { bottom, top, right } = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const below = bottom + height + 8 < innerHeight;
  menu.style.top = `${below ? bottom + 2 : Math.max(8, top - height - 2)}px`;
  menu.style.left = `${Math.min(Math.max(8, right - width), innerWidth - width - 8)}px`;
}

function onMenuKey(event) {
  const items = [...menu.children];
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
  if (to !== undefined) items.at(to % items.length).focus();
  else if (event.key === "Escape" || event.key === "Tab") close(true);
  else return;
  event.preventDefault(); // one Escape closes one thing
}

// Its choices

function rename(item, link) {
  const input = document.createElement("input");
  input.className = "rename";
  input.value = link.textContent;
  input.maxLength = 200;
  input.setAttribute("aria-label", gettext("New title"));
  let over = false;
  const end = (focus) => {
    over = true;
    input.replaceWith(link);
    if (focus) link.focus();
  };
  const save = (focus) => {
    if (over) return;
    const title = input.value.trim();
    end(focus);
    if (!title || title === link.textContent) return;
    post(`${link.getAttribute("href")}rename/`, { title })
      .then((answer) => retitle(link, answer.title))
      .catch(complain(gettext("Not renamed.")));
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing && event.keyCode !== 229) save(true);
    else if (event.key === "Escape") end(true);
    else return;
    event.preventDefault();
  });
  input.addEventListener("blur", () => save(false));
  link.replaceWith(input);
  input.focus();
  input.select();
}

// link: its entry in the list; none while that doesn't show it, and then it is the page's own
export function retitle(link, title) {
  if (link) link.textContent = link.title = title;
  link?.closest("li")?.querySelector(".options").setAttribute("aria-label", interpolate(gettext("Options of %(title)s"), { title }));
  if (link && link.dataset.conversation !== document.body.dataset.conversation) return;
  document.querySelector("#title").textContent = title;
  document.title = `${title} · Tokenline`;
}

async function pin(link, pinned) {
  try {
    await post(`${link.getAttribute("href")}pin/`, { pinned: pinned ? 1 : 0 });
    await refresh();
    const { conversation } = link.dataset;
    list.querySelector(`a[data-conversation="${CSS.escape(conversation)}"]`)?.parentElement.querySelector(".options").focus();
  } catch (error) {
    complain(pinned ? gettext("Not pinned.") : gettext("Still pinned."))(error);
  }
}

async function remove(item, link) {
  const { conversation } = link.dataset;
  const deleted = { address: link.getAttribute("href"), title: link.textContent, at: Date.now() };
  try {
    await post(`${deleted.address}delete/`);
  } catch (error) {
    complain(gettext("Not deleted."))(error);
    return;
  }
  if (conversation === document.body.dataset.conversation) {
    sessionStorage.setItem(DELETED, JSON.stringify(deleted));
    location.assign("/");
    return;
  }
  const section = item.closest("section");
  const next = (item.nextElementSibling ?? item.previousElementSibling)?.querySelector(".options");
  item.remove();
  if (!section.querySelector("li")) section.remove();
  (next ?? document.querySelector("#new")).focus();
  offerUndo(deleted, UNDO, () => refresh());
}

function offerUndo({ address, title }, milliseconds, restored) {
  toast(interpolate(gettext("“%(title)s” was deleted."), { title: shortened(title) }), milliseconds, gettext("Undo"), () =>
    post(`${address}restore/`).then(restored).catch(complain(gettext("Not restored."))),
  );
}

// The conversation of the page before this one.
function offerLastUndo() {
  const kept = sessionStorage.getItem(DELETED);
  if (!kept) return;
  sessionStorage.removeItem(DELETED);
  const deleted = JSON.parse(kept);
  const left = deleted.at + UNDO - Date.now();
  if (left > 0) offerUndo(deleted, left, () => location.assign(deleted.address));
}

function shortened(title) {
  const characters = [...title];
  return characters.length > 40 ? `${characters.slice(0, 39).join("")}…` : title;
}

function startImport() {
  const input = document.querySelector("#import-file");
  document.querySelector("#import").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    const form = new FormData();
    form.append("file", file);
    input.value = ""; // so that the same file can be chosen again
    toast(gettext("Importing…"), 0);
    try {
      const { conversations: number } = await post(input.dataset.address, form);
      const words = ngettext("%(number)s conversation was imported.", "%(number)s conversations were imported.", number);
      toast(interpolate(words, { number }));
      await refresh();
    } catch (error) {
      complain(gettext("Not imported."))(error);
    }
  });
}
