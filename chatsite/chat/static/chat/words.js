// What the page says about a reply, in the same words as the server's history.
import { gettext, interpolate, ngettext } from "./gettext.js";

const TITLE_LENGTH = 60;
const LONGEST_LINE = 500;

const ordinals = new Intl.PluralRules(document.documentElement.lang, { type: "ordinal" });

export function ordinal(number) {
  const words = {
    one: gettext("%(number)sst"),
    two: gettext("%(number)snd"),
    few: gettext("%(number)srd"),
    other: gettext("%(number)sth"),
  };
  return interpolate(words[ordinals.select(number)] ?? words.other, { number });
}

export function duration(seconds) {
  if (seconds < 90) return interpolate(gettext("%(number)s s"), { number: Math.max(1, Math.round(seconds)) });
  return interpolate(gettext("%(number)s min"), { number: Math.round(seconds / 60) });
}

export function placeInLine(frame, workers) {
  if (frame.paused) return gettext("paused");
  // Of those who wait: "1st" beside a running reply would sound like having one's turn.
  const isNext = !(frame.position > 1);
  const place = isNext
    ? gettext("next in line")
    : interpolate(gettext("%(place)s in line"), { place: ordinal(frame.position) });
  if (workers === 0) return interpolate(gettext("%(place)s, no worker is running"), { place });
  if (!frame.eta_seconds) return place;
  return interpolate(gettext("%(place)s, about %(duration)s"), { place, duration: duration(frame.eta_seconds) });
}

export function outcome(frame) {
  if (frame.type === "cancelled") return gettext("stopped");
  if (frame.type === "expired") {
    return frame.message ? interpolate(gettext("waited too long: %(message)s"), frame) : gettext("waited too long");
  }
  if (frame.type === "failed") return interpolate(gettext("failed: %(message)s (%(code)s)"), frame);
  const tokens = frame.usage?.completion_tokens ?? 0;
  const words = [interpolate(ngettext("%(number)s token", "%(number)s tokens", tokens), { number: tokens })];
  const seconds = (frame.timings?.total ?? 0) - (frame.timings?.first_token ?? 0);
  const timed = frame.timings?.tokens ?? tokens; // fewer than all if another worker began the reply
  if (timed > 1 && seconds > 0) {
    words.push(interpolate(gettext("%(speed)s tokens/s"), { speed: ((timed - 1) / seconds).toFixed(1) }));
  }
  if (frame.reason === "length") words.push(gettext("ended at its length"));
  if (frame.usage?.dropped_messages) words.push(leftOut(frame.usage.dropped_messages));
  return words.join(" · ");
}

function leftOut(number) {
  const words = ngettext(
    "the oldest message no longer fits and was left out",
    "the oldest %(number)s messages no longer fit and were left out",
    number,
  );
  return interpolate(words, { number });
}

// As the server titles a conversation: the first line with words, without Markdown's marks, cut between words.
export function titleFrom(text) {
  const lines = text.split("\n").map((each) => each.slice(0, LONGEST_LINE).trim().replace(/\s+/g, " "));
  const line = lines.map(withoutMarks).find(Boolean) ?? lines.find(Boolean) ?? "";
  const characters = [...line];
  if (characters.length <= TITLE_LENGTH) return line;
  const cut = characters.slice(0, TITLE_LENGTH - 1);
  const blank = cut.lastIndexOf(" ");
  return `${(blank >= TITLE_LENGTH / 2 ? cut.slice(0, blank) : cut).join("").trimEnd()}…`;
}

function withoutMarks(line) {
  if (/^(?:```|~~~|[-*_=#>\s]+$)/.test(line)) return "";
  line = line.replace(/^(?:#{1,6} |> ?|[-*+] )+/, "").replace(/!?\[([^\]]*)\]\([^)\s]*\)/g, "$1");
  for (let each = 0; each < 2; each += 1) {
    line = line.replace(/(?<![\w*`~])(\*{1,3}|`|~~)(?=\S)(.+?)(?<=\S)\1(?![\w*`~])/g, "$2"); // one in another
  }
  return line.trim();
}
