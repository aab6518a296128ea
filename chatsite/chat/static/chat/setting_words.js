// What the page says about models, settings and the context.
import { gettext, interpolate, ngettext, number } from "./gettext.js";
import { duration } from "./words.js";

// How it stands with a model: whether it can answer, else how long its line is.
export function lineOf({ state, paused, waiting, eta_seconds: seconds }) {
  if (state === "failed") return gettext("could not be loaded");
  if (state === "no_worker") return gettext("no worker is running");
  if (paused) {
    return waiting
      ? interpolate(gettext("paused, %(number)s waiting"), { number: number(waiting) })
      : gettext("paused");
  }
  if (state === "loading") return gettext("is being loaded");
  if (waiting === undefined) return ""; // a server of before
  if (!waiting && seconds === 0) return gettext("free");
  const line = waiting ? interpolate(gettext("%(number)s waiting"), { number: number(waiting) }) : gettext("busy");
  if (!seconds) return line;
  return interpolate(gettext("%(line)s, about %(duration)s"), { line, duration: duration(seconds) });
}

export const offer = (name, line) => (line ? `${name} – ${line}` : name);

export function used(tokens, context) {
  return interpolate(gettext("%(tokens)s of %(context)s tokens"), { tokens: number(tokens), context: number(context) });
}

export function tokensUsed(tokens) {
  return interpolate(ngettext("%(number)s token", "%(number)s tokens", tokens), { number: number(tokens) });
}

export const NEARLY_FULL = gettext(
  "The model's context is nearly full. Past its end it no longer reads the oldest messages.",
);

export function notRead(messages) {
  const words = ngettext(
    "The model's context is full: it no longer reads the oldest message.",
    "The model's context is full: it no longer reads the oldest %(number)s messages.",
    messages,
  );
  return interpolate(words, { number: number(messages) });
}

export const SETTINGS = gettext("Settings");
export const SETTINGS_CHANGED = gettext("Settings, changed");
export const SAVED = gettext("Settings saved");
export const UNSAVED = gettext("Closed without saving.");
export const REOPEN = gettext("Reopen");
export const MARKED = gettext("Not saved: the fields marked in red say why.");
export const UNREACHED = gettext("Not saved: the site doesn't answer just now. What you wrote stays here.");
export const UNREAD = gettext("The settings can't be read just now. Try again when the connection is back.");
export const MODEL_NOT_KEPT = gettext(
  "The choice of the model could not be stored. It holds for what is sent from this page.",
);
