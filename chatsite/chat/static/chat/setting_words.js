// What the page says about models, settings and the context.
import { duration } from "./words.js";

export const number = (value) => value.toLocaleString("en");

// How it stands with a model: whether it can answer, else how long its line is.
export function lineOf({ state, paused, waiting, eta_seconds: seconds }) {
  if (state === "failed") return "could not be loaded";
  if (state === "no_worker") return "no worker is running";
  if (paused) return waiting ? `paused, ${waiting} waiting` : "paused";
  if (state === "loading") return "is being loaded";
  if (waiting === undefined) return ""; // a server of before
  if (!waiting && seconds === 0) return "free";
  const line = waiting ? `${number(waiting)} waiting` : "busy";
  return seconds ? `${line}, about ${duration(seconds)}` : line;
}

export const offer = (name, line) => (line ? `${name} – ${line}` : name);

export const used = (tokens, context) => `${number(tokens)} of ${number(context)} tokens`;

export const tokensUsed = (tokens) => `${number(tokens)} tokens`;

export const NEARLY_FULL = "The model's context is nearly full. Past its end it no longer reads the oldest messages.";

export function notRead(messages) {
  const which = messages === 1 ? "message" : `${number(messages)} messages`;
  return `The model's context is full: it no longer reads the oldest ${which}.`;
}

export const SETTINGS = "Settings";
export const SETTINGS_CHANGED = "Settings, changed";
export const SAVED = "Settings saved";
export const UNSAVED = "Closed without saving.";
export const REOPEN = "Reopen";
export const MARKED = "Not saved: the fields marked in red say why.";
export const UNREACHED = "Not saved: the site doesn't answer just now. What you wrote stays here.";
export const UNREAD = "The settings can't be read just now. Try again when the connection is back.";
export const MODEL_NOT_KEPT = "The choice of the model could not be stored. It holds for what is sent from this page.";
