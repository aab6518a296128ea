// The list of conversations: a drawer on a phone, and a new entry when a conversation begins.

const body = document.body;
const list = document.querySelector("#conversations");
const opener = document.querySelector("#open-sidebar");
const closer = document.querySelector("#close-sidebar");
const veil = document.querySelector("#veil");
const account = document.querySelector("#account");

function setOpen(open) {
  body.classList.toggle("sidebar-open", open);
  veil.hidden = !open;
  opener.setAttribute("aria-expanded", String(open));
  (open ? closer : opener).focus();
}

export function startSidebar() {
  opener.addEventListener("click", () => setOpen(true));
  closer.addEventListener("click", () => setOpen(false));
  veil.addEventListener("click", () => setOpen(false));
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    account.open = false;
    if (body.classList.contains("sidebar-open")) setOpen(false);
  });
  addEventListener("click", (event) => account.contains(event.target) || (account.open = false));
}

export function addConversation(conversation, title) {
  let today = list.querySelector('[data-group="Today"]');
  if (!today) {
    today = document.createElement("section");
    today.dataset.group = "Today";
    const heading = document.createElement("h2");
    heading.textContent = "Today";
    today.append(heading, document.createElement("ul"));
    list.prepend(today);
  }
  const link = document.createElement("a");
  link.href = `/c/${conversation}/`;
  link.dataset.conversation = conversation;
  link.textContent = link.title = title;
  link.setAttribute("aria-current", "page");
  const item = document.createElement("li");
  item.append(link);
  today.querySelector("ul").prepend(item);
}
