// What a screen reader is told: a place in line when it changes, and a reply once, when it has ended; never its tokens.
import { gettext, interpolate } from "./gettext.js";

const LONGEST = 1_000; // characters of a reply that are read out by themselves
const live = document.querySelector("#live");
const places = new Map(); // job → the place that was told last

export function say(text) {
  live.textContent = text;
}

// words: what the page shows of it, which may count seconds
export function sayPlace(job, position, words) {
  if (places.get(job) === position) return;
  places.set(job, position);
  say(words);
}

export function sayEnd(words, reply) {
  places.delete(reply.job);
  const text = beginningOf(reply.blocks);
  say(text ? interpolate(gettext("%(words)s. %(text)s"), { words, text }) : words);
}

function beginningOf(blocks) {
  let text = "";
  for (const block of blocks.children) {
    const said = block.cloneNode(true);
    for (const bar of said.querySelectorAll(".bar")) bar.remove();
    text += `${said.textContent.replace(/\s+/g, " ").trim()} `;
    if (text.length > LONGEST) return `${text.slice(0, text.lastIndexOf(" ", LONGEST)) || text.slice(0, LONGEST)}…`;
  }
  return text.trim();
}
