// One reply on the page: its phase, its growing blocks, its end. One job at a time writes it.
import { gettext, interpolate } from "./gettext.js";
import { trusted } from "./trusted.js";
import { outcome, placeInLine } from "./words.js";

const UNFINISHED = ["queued", "running"];

export function newReply(message) {
  const article = document.createElement("article");
  article.className = "reply";
  article.dataset.message = message;
  article.setAttribute("aria-label", gettext("Reply"));
  for (const [tag, name] of [["div", "blocks"], ["p", "status"], ["p", "meta"]]) {
    const part = document.createElement(tag);
    part.className = name;
    part.hidden = name === "meta";
    article.append(part);
  }
  return article;
}

export class Reply {
  #pending = new Map(); // index → newest HTML not painted yet
  #numBlocks = null;
  #scheduled = false;
  #painted;

  constructor(article, painted) {
    this.article = article;
    this.#painted = painted;
    this.seq = 0;
    this.origin = undefined;
    this.stopping = false;
    this.blocks = article.querySelector(".blocks");
    this.status = article.querySelector(".status");
    this.meta = article.querySelector(".meta");
    // What a selection kept from being painted is painted once the selection is gone.
    document.addEventListener("selectionchange", () => this.#pending.size && this.#schedule());
  }

  get job() {
    return this.article.dataset.job;
  }

  get isUnfinished() {
    return UNFINISHED.includes(this.article.dataset.state);
  }

  begin(job, state = "queued") {
    if (this.job === job && this.isUnfinished) return;
    this.seq = 0;
    this.origin = undefined;
    this.stopping = false;
    this.article.dataset.job = job;
    this.article.dataset.state = state;
    this.article.setAttribute("aria-busy", "true");
    this.meta.hidden = true;
  }

  say(text) {
    this.status.textContent = this.stopping ? gettext("stopping…") : text;
    this.status.hidden = false;
  }

  stop() {
    this.stopping = true;
    this.say("");
  }

  // Stopping it was refused: it goes on.
  notStopped(text) {
    this.stopping = false;
    this.say(text);
  }

  queued(frame, workers) {
    this.article.dataset.state = "queued";
    this.article.dataset.model = frame.model ?? "";
    this.say(placeInLine(frame, workers));
  }

  started(frame) {
    this.article.dataset.state = "running";
    if (frame.origin !== undefined) this.origin = frame.origin;
    if (!this.seq) this.say(gettext("reading your prompt"));
    else if (!this.stopping) this.status.hidden = true;
  }

  prefill(frame) {
    if (frame.total) this.say(interpolate(gettext("reading your prompt %(percent)s %"), { percent: Math.round((100 * frame.done) / frame.total) }));
  }

  html(frame) {
    this.seq = frame.seq;
    if (frame.origin !== undefined) this.origin = frame.origin;
    this.#numBlocks = frame.blocks;
    for (const [index, html] of frame.changes) this.#pending.set(index, html);
    if (!this.stopping && frame.blocks) this.status.hidden = true;
    this.#schedule();
  }

  end(frame) {
    // At once: nobody finds an ended reply without its end, nor does a hidden tab, which gets no animation frames.
    this.#paint();
    this.article.dataset.state = frame.type;
    this.article.removeAttribute("aria-busy");
    if (frame.usage) {
      this.article.dataset.dropped = frame.usage.dropped_messages ?? 0;
      this.article.dataset.tokens = frame.usage.prompt_tokens + frame.usage.completion_tokens;
    }
    this.stopping = false;
    this.status.hidden = true;
    const words = document.createElement("span");
    words.className = "outcome";
    words.textContent = outcome(frame);
    if (frame.code) words.title = frame.code;
    this.meta.replaceChildren(words);
    this.meta.hidden = false;
    if (frame.type === "finished" && frame.reason === "length") this.meta.append(askButton("continue", gettext("Continue")));
    this.meta.append(askButton("regenerate", gettext("Try again")));
    this.#painted();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.#scheduled = false;
    const selection = getSelection();
    const range = selection && !selection.isCollapsed && selection.rangeCount ? selection.getRangeAt(0) : null;
    const blocks = this.blocks.children;
    for (const [index, html] of [...this.#pending].sort((a, b) => a[0] - b[0])) {
      let block = blocks[index];
      if (block && range?.intersectsNode(block)) continue; // never tear a selection apart
      while (!block) {
        const added = document.createElement("div");
        added.className = "block";
        added.dir = "auto";
        this.blocks.append(added);
        block = blocks[index];
      }
      block.innerHTML = trusted(html);
      this.#pending.delete(index);
    }
    if (this.#numBlocks !== null) {
      while (blocks.length > this.#numBlocks) this.blocks.lastElementChild.remove();
      for (const index of this.#pending.keys()) if (index >= this.#numBlocks) this.#pending.delete(index);
    }
    this.#painted();
  }
}

function askButton(ask, text) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.ask = ask;
  button.textContent = text;
  return button;
}
