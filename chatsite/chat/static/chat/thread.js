// The conversation on the page: prompts and replies in order, followed to its end unless the reader scrolls up.
import { gettext, interpolate } from "./gettext.js";
import { newReply, Reply } from "./reply.js";
import { dress } from "./tools.js";
import { trusted } from "./trusted.js";

const NEAR = 40; // pixels from the end that still count as the end

export class Thread {
  #scroller = document.querySelector("#scroller");
  #thread = document.querySelector("#thread");
  #jump = document.querySelector("#jump");
  #replies = new Map(); // message → Reply
  #shows = 0; // how often other versions were asked for: only the last answer counts
  #sticks = true;
  #seen = { top: 0, height: 0, width: 0 }; // where the scroller stood, to tell a reader's scrolling from a new layout

  constructor() {
    for (const article of this.#thread.children) this.#adopt(article);
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#scroller.addEventListener("wheel", (event) => event.deltaY < 0 && this.#follow(false), { passive: true });
    this.#jump.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.#keepEnd()).observe(this.#thread);
    new ResizeObserver(() => this.#keepEnd()).observe(this.#scroller);
    this.toEnd();
  }

  #adopt(article) {
    dress(article);
    if (!article.matches(".reply")) return null;
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

  // The last message shown; prompts go on from it.
  get last() {
    return this.#thread.lastElementChild?.dataset.message;
  }

  parentOf(article) {
    return article.previousElementSibling?.dataset.message ?? null;
  }

  shown(reply) {
    return this.#replies.get(reply);
  }

  // The reply that a `queued` frame is about, added with its prompt if it is new; null if its branch isn't shown.
  reply({ message, reply, text, parent }) {
    const known = this.#replies.get(reply);
    if (known) return known;
    const prompt = this.#find(message);
    const above = parent ? this.#find(parent) : null;
    if (!prompt && parent && !above) return null;
    document.querySelector("#empty")?.remove();
    if (!prompt) {
      // Without `parent`, which servers of before didn't name, it goes on from the last one.
      const old = parent === undefined ? null : above ? above.nextElementSibling : this.#thread.firstElementChild;
      this.#replace(old, newPrompt(message, text ?? ""));
    }
    const article = newReply(reply);
    this.#replace(prompt?.nextElementSibling, article);
    return this.#replies.get(reply);
  }

  // The newest version takes the place of the one shown, and of what stands below that.
  #replace(old, article) {
    article.dataset.number = article.dataset.count = old ? Number(old.dataset.count) + 1 : 1;
    while (old) {
      const next = old.nextElementSibling;
      this.#remove(old);
      old = next;
    }
    this.#thread.append(article);
    this.#adopt(article);
  }

  #remove(article) {
    this.#replies.delete(article.dataset.message);
    article.remove();
  }

  #find(message) {
    return [...this.#thread.children].find((article) => article.dataset.message === message);
  }

  // Shows the branch that the server's page shows. What stands here already stays as it is; the unfinished replies
  // that are new here are returned, to be followed. `reader` keeps the place on the screen of what was read.
  async show(address, options = {}, reader = null) {
    const number = ++this.#shows;
    const before = this.#messages();
    const response = await fetch(address, { redirect: "error", ...options });
    if (!response.ok) throw new Error(await reason(response));
    const page = new DOMParser().parseFromString(trusted(await response.text()), "text/html");
    if (number !== this.#shows) return [];
    // Something was asked meanwhile, of which that page knows nothing.
    if (this.#messages().some((message) => !before.includes(message))) return this.show(location.pathname, {}, reader);
    const place = reader && [...this.#thread.children].indexOf(reader);
    const top = reader?.getBoundingClientRect().top;
    if (reader) this.#follow(false);
    const added = this.#take([...page.querySelectorAll("#thread > article")]);
    if (reader) {
      const now = reader.isConnected ? reader : this.#thread.children[place];
      if (now) this.#scroller.scrollTop += now.getBoundingClientRect().top - top;
    }
    this.#keepEnd();
    return added;
  }

  #messages() {
    return [...this.#thread.children].map((article) => article.dataset.message);
  }

  #take(articles) {
    const wanted = articles.map((article) => article.dataset.message);
    for (const shown of [...this.#thread.children]) if (!wanted.includes(shown.dataset.message)) this.#remove(shown);
    if (articles.length) document.querySelector("#empty")?.remove();
    const added = [];
    let next = this.#thread.firstElementChild;
    for (const article of articles) {
      const { message } = article.dataset;
      const isOld = next && next.dataset.message !== message ? null : next;
      next = isOld ? next.nextElementSibling : next;
      if (isOld && !this.#isOutdated(isOld, article)) {
        dress(isOld, article.dataset);
        continue;
      }
      if (isOld) this.#remove(isOld);
      const taken = document.importNode(article, true);
      this.#thread.insertBefore(taken, next);
      const reply = this.#adopt(taken);
      if (reply?.isUnfinished) added.push(reply);
    }
    return added;
  }

  // Its end is here, and another job went on with it since. One that grows here is followed to its end.
  #isOutdated(shown, article) {
    return !this.#replies.get(shown.dataset.message)?.isUnfinished && shown.dataset.job !== article.dataset.job;
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
  article.setAttribute("aria-label", gettext("You"));
  const words = document.createElement("div");
  words.className = "text";
  words.dir = "auto";
  words.textContent = text;
  article.append(words);
  return article;
}

// What the server says, or nothing but its status.
export async function reason(response) {
  const isPlain = response.headers.get("content-type")?.startsWith("text/plain");
  if (isPlain) return response.text();
  const words = gettext("That could not be done (%(status)s). Reload the page and try again.");
  return interpolate(words, { status: response.status });
}
