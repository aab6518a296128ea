// Where a prompt is written. Its text leaves only once the server has it; a refused one stays with the reason.
import { gettext, interpolate, number } from "./gettext.js";

const COMPOSITION_TAIL = 50; // ms: some browsers send the Enter that confirmed a candidate just after its end

export class Composer {
  #form = document.querySelector("#composer");
  #box = document.querySelector("#prompt");
  #send = document.querySelector("#send");
  #error = document.querySelector("#composer-error");
  #model = document.querySelector("#model");
  #limit = Infinity;
  #key;
  #composedAt = -Infinity;
  #submit;

  unanswered = null; // a `prompt` frame: sent or waiting to be sent, not answered yet

  constructor(user, conversation, submit) {
    this.#submit = submit;
    this.#key = (name) => `tokenline:draft:${user}:${name || "new"}`;
    this.conversation = conversation;
    this.#box.value ||= this.#draft().text;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#trySubmit();
    });
    this.#box.addEventListener("input", () => this.#changed());
    this.#box.addEventListener("compositionend", () => (this.#composedAt = performance.now()));
    this.#box.addEventListener("keydown", (event) => this.#keyDown(event));
    this.#changed();
    if (matchMedia("(pointer: fine)").matches) this.#box.focus();
  }

  #keyDown(event) {
    if (event.key !== "Enter" || event.shiftKey) return;
    const composing = event.isComposing || event.keyCode === 229;
    if (composing || performance.now() - this.#composedAt < COMPOSITION_TAIL) return;
    event.preventDefault();
    this.#trySubmit();
  }

  #trySubmit() {
    if (this.#send.disabled) return;
    const text = this.#box.value;
    const draft = this.#draft();
    // The same text sent again, after a reload too, keeps its id and can't become a second job.
    const id = draft.text === text && draft.id ? draft.id : newId();
    this.#store({ text, id });
    this.unanswered = { type: "prompt", id, text, model: this.model };
    this.complain("");
    this.#update();
    this.#submit(this.unanswered);
  }

  get model() {
    return this.#model.hidden ? undefined : this.#model.value;
  }

  write(text) {
    this.#box.value = text;
    this.#changed();
    this.#trySubmit();
  }

  // The server has the prompt: it leaves the composer, and what was written since stays.
  accepted(id) {
    if (this.unanswered?.id !== id) return;
    const { text } = this.unanswered;
    this.unanswered = null;
    this.#box.value = this.#box.value.startsWith(text) ? this.#box.value.slice(text.length) : this.#box.value;
    this.#changed();
  }

  refused(id, message, kind) {
    if (this.unanswered?.id !== id) return;
    // Its id stays with it: a server that was cut off in the middle may have it nevertheless.
    this.unanswered = null;
    this.#update();
    this.complain(message, kind);
  }

  complain(message, kind = "") {
    this.#error.textContent = message;
    this.#error.hidden = !message;
    this.#error.dataset.kind = kind;
  }

  // What was complained of because something was down is out of date.
  recovered() {
    if (this.#error.dataset.kind === "outage") this.complain("");
  }

  configure(limits) {
    this.#limit = limits?.max_prompt_chars || Infinity;
    this.#update();
  }

  belongsTo(conversation) {
    localStorage.removeItem(this.#key(this.conversation));
    this.conversation = conversation;
    if (this.#box.value) this.#store({ text: this.#box.value });
  }

  #changed() {
    const { value } = this.#box;
    if (this.#draft().text !== value) this.#store({ text: value });
    this.#box.style.height = "auto";
    this.#box.style.height = `${this.#box.scrollHeight}px`;
    if (this.#error.dataset.kind !== "length") this.complain("");
    this.#update();
  }

  #update() {
    const { value } = this.#box;
    // The server counts characters, JavaScript halves of pairs: only a text near the limit is counted exactly.
    const length = value.length > this.#limit ? [...value].length : value.length;
    const tooLong = length > this.#limit;
    if (tooLong) {
      const words = gettext("This is %(length)s characters; at most %(limit)s fit.");
      this.complain(interpolate(words, { length: number(length), limit: number(this.#limit) }), "length");
    } else if (this.#error.dataset.kind === "length") {
      this.complain("");
    }
    this.#send.disabled = !value.trim() || tooLong || this.unanswered !== null;
  }

  #draft() {
    try {
      return JSON.parse(localStorage.getItem(this.#key(this.conversation))) ?? { text: "" };
    } catch {
      return { text: "" };
    }
  }

  #store(draft) {
    try {
      if (draft.text) localStorage.setItem(this.#key(this.conversation), JSON.stringify(draft));
      else localStorage.removeItem(this.#key(this.conversation));
    } catch {
      // Storage is full or forbidden: the draft lives as long as the page.
    }
  }
}

// crypto.randomUUID exists on https and localhost only.
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
