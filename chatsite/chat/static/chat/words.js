// What the page says about a reply, in the same words as the server's history.

const TITLE_LENGTH = 60;

export function ordinal(number) {
  const tens = number % 100;
  const suffix = tens > 10 && tens < 14 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th";
  return `${number}${suffix}`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return `${Math.round(seconds / 60)} min`;
}

export function placeInLine(frame, workers) {
  if (frame.paused) return "paused";
  // Of those who wait: "1st" beside a running reply would sound like having one's turn.
  const place = frame.position > 1 ? `${ordinal(frame.position)} in line` : "next in line";
  if (workers === 0) return `${place}, no worker is running`;
  return frame.eta_seconds ? `${place}, about ${duration(frame.eta_seconds)}` : place;
}

export function outcome(frame) {
  if (frame.type === "cancelled") return "stopped";
  if (frame.type === "expired") return frame.message ? `waited too long: ${frame.message}` : "waited too long";
  if (frame.type === "failed") return `failed: ${frame.message} (${frame.code})`;
  const tokens = frame.usage?.completion_tokens ?? 0;
  const words = [`${tokens} token${tokens === 1 ? "" : "s"}`];
  const seconds = (frame.timings?.total ?? 0) - (frame.timings?.first_token ?? 0);
  const timed = frame.timings?.tokens ?? tokens; // fewer than all if another worker began the reply
  if (timed > 1 && seconds > 0) words.push(`${((timed - 1) / seconds).toFixed(1)} tokens/s`);
  if (frame.reason === "length") words.push("ended at its length");
  if (frame.usage?.dropped_messages) words.push(leftOut(frame.usage.dropped_messages));
  return words.join(" · ");
}

function leftOut(number) {
  if (number === 1) return "the oldest message no longer fits and was left out";
  return `the oldest ${number} messages no longer fit and were left out`;
}

// As the server titles a conversation: the first line with words, without Markdown's marks, cut between words.
export function titleFrom(text) {
  const lines = text.split("\n").map((each) => each.trim().replace(/\s+/g, " "));
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
