// The conversation on the page: prompts and replies in order, followed to its end unless the reader scrolls up.
import { newReply, Reply } from "./reply.js";
import { trusted } from "./trusted.js";

const NEAR = 40; // pixels from the end that still count as the end

export class Thread {
  #scroller = document.querySelector("#scroller");
  #thread = document.querySelector("#thread");
  #jump = document.querySelector("#jump");
  #replies = new Map(); // message → Reply
  #sticks = true;
  #seen = { top: 0, height: 0, width: 0 }; // where the scroller stood, to tell a reader's scrolling from a new layout

  constructor() {
    for (const article of this.#thread.querySelectorAll("article.reply")) this.#adopt(article);
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#scroller.addEventListener("wheel", (event) => event.deltaY < 0 && this.#follow(false), { passive: true });
    this.#jump.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.#keepEnd()).observe(this.#thread);
    new ResizeObserver(() => this.#keepEnd()).observe(this.#scroller);
    this.toEnd();
  }

  #adopt(article) {
    const reply = new Reply(article, () => this.#keepEnd());
    this.#replies.set(article.dataset.message, reply);
    return reply;
  }

  unfinished() {
    return [...this.#replies.values()].filter((reply) => reply.isUnfinished);
  }

  ofJob(job) {
    return [...this.#replies.values()].find((reply) => reply.job === job);
  }

  // The reply that a `queued` frame or an entry of `hello.active` is about, added with its prompt if it is new.
  reply({ message, reply, text }) {
    const known = this.#replies.get(reply);
    if (known) return known;
    document.querySelector("#empty")?.remove();
    const prompt = this.#find(message);
    if (prompt) this.#removeAfter(prompt);
    else if (typeof text === "string") this.#thread.append(newPrompt(message, text));
    const article = newReply(reply);
    this.#thread.append(article);
    return this.#adopt(article);
  }

  has(message) {
    return Boolean(this.#find(message));
  }

  // Another reply to the same prompt takes the place of the one shown.
  #removeAfter(prompt) {
    while (prompt.nextElementSibling) {
      this.#replies.delete(prompt.nextElementSibling.dataset.message);
      prompt.nextElementSibling.remove();
    }
  }

  #find(message) {
    return [...this.#thread.children].find((article) => article.dataset.message === message);
  }

  // What was said elsewhere while this page was away: the server's page knows it, nothing shown is touched.
  async catchUp(address) {
    const response = await fetch(address, { redirect: "error" });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(trusted(await response.text()), "text/html");
    let previous = null;
    for (const article of page.querySelectorAll("#thread > article")) {
      let shown = this.#find(article.dataset.message);
      if (!shown) {
        shown = document.importNode(article, true);
        if (previous) previous.after(shown);
        else this.#thread.prepend(shown);
        if (shown.matches(".reply")) this.#adopt(shown);
      }
      previous = shown;
    }
  }

  toEnd() {
    this.#follow(true);
    this.#keepEnd();
  }

  #follow(sticks) {
    this.#sticks = sticks;
    // While the end is followed the browser must not hold on to what is in view.
    this.#scroller.classList.toggle("follows", sticks);
    this.#jump.hidden = sticks || this.#gap() <= NEAR;
  }

  #gap() {
    return this.#scroller.scrollHeight - this.#scroller.scrollTop - this.#scroller.clientHeight;
  }

  #keepEnd() {
    if (this.#sticks) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    else this.#jump.hidden = this.#gap() <= NEAR;
    this.#look();
  }

  #look() {
    const { scrollTop: top, scrollHeight, clientHeight, clientWidth: width } = this.#scroller;
    const before = this.#seen;
    this.#seen = { top, height: scrollHeight - clientHeight, width };
    return before;
  }

  #scrolled() {
    const before = this.#look();
    const { top, height, width } = this.#seen;
    const byReader = height === before.height && width === before.width;
    if (byReader && top < before.top - 2) this.#follow(false);
    else if (top >= before.top && this.#gap() <= NEAR) this.#follow(true);
    else this.#follow(this.#sticks);
  }
}

function newPrompt(message, text) {
  const article = document.createElement("article");
  article.className = "prompt";
  article.dataset.message = message;
  article.setAttribute("aria-label", "You");
  const words = document.createElement("div");
  words.className = "text";
  words.dir = "auto";
  words.textContent = text;
  article.append(words);
  return article;
}
