// The models to choose from, each with its line as it stands.
import { lineOf, offer } from "./setting_words.js";

const FRESH = 2_000; // ms
const AGAIN = 15_000;

// Says `change` when anything about them is news.
export class Models extends EventTarget {
  #offers = [];
  #chooser = document.querySelector("#chooser");
  #select = document.querySelector("#model");
  #chosen = "";
  #askedAt = -Infinity;
  #ask;

  // ask() asks the server how the lines are; chosen(name) hears of a person's choice
  constructor(ask, chosen) {
    super();
    this.#ask = ask;
    this.#select.addEventListener("change", () => {
      this.choose(this.#select.value);
      chosen(this.#select.value);
    });
    for (const event of ["pointerenter", "focus"]) this.#select.addEventListener(event, () => this.refresh());
    setInterval(() => document.hidden || this.#chooser.hidden || this.refresh(), AGAIN);
  }

  refresh() {
    if (performance.now() - this.#askedAt < FRESH) return;
    this.#askedAt = performance.now();
    this.#ask();
  }

  take(offers = []) {
    this.#offers = offers;
    this.#askedAt = performance.now();
    this.#show();
  }

  // An empty name, or one that is offered no longer, is the default.
  choose(name) {
    this.#chosen = name ?? "";
    this.#show();
  }

  get isChoice() {
    return this.#offers.length > 1;
  }

  get current() {
    return this.named(this.#chosen);
  }

  named(name) {
    return this.#offers.find((each) => each.name === name) ?? this.#offers.find((each) => each.default);
  }

  #show() {
    this.#chooser.hidden = this.#select.hidden = !this.isChoice;
    const { current } = this;
    if (current) this.fill(this.#select, current.name);
    const [name, line] = this.#chooser.querySelectorAll("strong, span > span");
    name.textContent = current?.name ?? "";
    line.textContent = current ? lineOf(current) : "";
    this.dispatchEvent(new Event("change"));
  }

  // What is the same stays: a list that is open keeps its place.
  fill(select, chosen) {
    if ([...select.options].map(({ value }) => value).join(" ") !== this.#offers.map(({ name }) => name).join(" ")) {
      select.replaceChildren(...this.#offers.map(({ name }) => new Option(name, name)));
    }
    this.#offers.forEach((each, index) => {
      const text = offer(each.name, lineOf(each));
      if (select.options[index].text !== text) select.options[index].text = text;
    });
    select.value = this.named(chosen)?.name ?? "";
  }
}
