// What was asked of the server and not answered yet. It is sent again with each new connection, under the same id,
// so that it becomes one job however often it is sent.
import { gettext } from "./gettext.js";

const PATIENCE = 4_000;
const UNSENT = gettext("Not sent yet. It is sent by itself when the connection is back.");
const STOPPING = gettext("It is stopped when the connection is back.");
const UNANSWERED = gettext("No answer yet. Your message is kept here until there is one.");

export class Asked {
  #asked = new Map(); // id → { frame, wasSent, stopping, timer }
  #send;
  #hint = document.querySelector("#composer-hint");

  // send(frame) says whether there was a connection to send it on
  constructor(send) {
    this.#send = send;
  }

  get size() {
    return this.#asked.size;
  }

  has(id) {
    return this.#asked.has(id);
  }

  ask(frame) {
    const entry = { frame, wasSent: false, stopping: false, timer: 0 };
    this.#asked.set(frame.id, entry);
    this.#try(entry);
  }

  connected() {
    this.#say("");
    for (const entry of this.#asked.values()) this.#try(entry);
  }

  disconnected() {
    for (const { timer } of this.#asked.values()) clearTimeout(timer);
    if (this.#asked.size) this.#say(this.#isStopping ? STOPPING : UNSENT);
  }

  answered(id) {
    clearTimeout(this.#asked.get(id)?.timer);
    this.#asked.delete(id);
    if (!this.#asked.size) this.#say("");
  }

  forget() {
    for (const id of [...this.#asked.keys()]) this.answered(id);
  }

  // Takes everything back; the ids of what the server can't have seen are returned and forgotten.
  stop() {
    const unseen = [];
    for (const [id, entry] of this.#asked) {
      entry.stopping = true;
      if (!this.#send({ type: "cancel", id }) && !entry.wasSent) unseen.push(id);
    }
    for (const id of unseen) this.answered(id);
    if (this.#hint.textContent === UNSENT) this.disconnected();
    return unseen;
  }

  get #isStopping() {
    return [...this.#asked.values()].every(({ stopping }) => stopping);
  }

  #try(entry) {
    clearTimeout(entry.timer);
    if (!this.#send(entry.frame)) {
      this.#say(UNSENT);
      return;
    }
    entry.wasSent = true;
    if (entry.stopping) this.#send({ type: "cancel", id: entry.frame.id });
    entry.timer = setTimeout(() => this.#say(UNANSWERED), PATIENCE);
  }

  #say(text) {
    if (this.#hint.textContent !== text) this.#hint.textContent = text;
  }
}
