// The line at the top that says what is wrong, and for a moment that it is over.
//
// One thing at a time, the nearest first: no network, no connection, then what the server says is down.
import { gettext, interpolate } from "./gettext.js";

const OFFLINE = gettext("You are offline. This page goes on by itself when the network is back.");
const LOST = gettext("Connection lost, trying again");
const FAREWELL = 2_000;

export class Banner {
  #banner = document.querySelector("#banner");
  #words = document.createElement("span");
  #count = document.createElement("span");
  #timer = 0;
  #offline = false;

  constructor() {
    this.#count.setAttribute("aria-hidden", "true"); // a screen reader would read every second of it
  }

  // problems: what a server said that couldn't take us; else it wasn't reached at all
  lost(seconds, problems = []) {
    const until = performance.now() + seconds * 1000;
    const words = problems.length
      ? interpolate(gettext("%(problems)s Trying again"), { problems: sentences(problems) })
      : LOST;
    const update = () => {
      const left = Math.ceil((until - performance.now()) / 1000);
      const count = !this.#offline && left > 0 ? interpolate(gettext(" in %(seconds)s s"), { seconds: left }) : "";
      this.#show(this.#offline ? OFFLINE : words, count);
    };
    clearInterval(this.#timer);
    update();
    this.#timer = setInterval(update, 500);
  }

  offline() {
    this.#offline = true;
    clearInterval(this.#timer);
    this.#show(OFFLINE);
  }

  back() {
    this.#offline = false;
    this.#farewell(gettext("Connected again"));
  }

  // Connected, and these are down; nothing when all is well again.
  problems(problems) {
    if (!problems.length) return this.#farewell(gettext("Everything works again"));
    clearInterval(this.#timer);
    this.#show(sentences(problems));
  }

  ended(text, link, address) {
    clearInterval(this.#timer);
    this.#show(link ? `${text} ` : text);
    if (!link) return;
    const anchor = document.createElement("a");
    anchor.href = address;
    anchor.textContent = link;
    this.#banner.append(anchor);
  }

  #farewell(text) {
    clearInterval(this.#timer);
    if (!this.#banner.firstChild) return;
    this.#show(text, "", false);
    this.#timer = setTimeout(() => this.#banner.replaceChildren(), FAREWELL);
  }

  // The banner is empty, never hidden: screen readers read only what changes in an element that was there.
  #show(words, count = "", trouble = true) {
    this.#banner.classList.toggle("trouble", trouble);
    if (this.#words.textContent !== words) this.#words.textContent = words;
    this.#count.textContent = count;
    if (!this.#words.isConnected || this.#banner.childElementCount > 2) {
      this.#banner.replaceChildren(this.#words, this.#count);
    }
  }
}

function sentences(problems) {
  return problems.map(({ message }) => message).join(" ");
}
