// The chat page: frames from the socket to the thread, and what the person does to the socket.
import { say, sayEnd, sayPlace } from "./announcer.js";
import { Asked } from "./asked.js";
import { Banner } from "./banner.js";
import { Composer, newId } from "./composer.js";
import { startContext } from "./context.js";
import { startCopying } from "./copy.js";
import { gettext } from "./gettext.js";
import { startKeyboard } from "./keyboard.js";
import { Models } from "./models.js";
import { onNews } from "./news.js";
import { Settings } from "./settings.js";
import { addConversation, startSidebar } from "./sidebar.js";
import { Socket } from "./socket.js";
import { Thread } from "./thread.js";
import { startTurning } from "./turns.js";
import { titleFrom } from "./words.js";

const [SIGNED_OUT, TOO_LARGE, TOO_MANY, TRY_AGAIN_LATER] = [4401, 4413, 4429, 4503]; // close codes
const { user, login } = document.body.dataset;
let conversation = document.body.dataset.conversation || null;
let workers;
let greeted = false;
let problems = []; // the server's last word on what is down
const mine = new Set(); // ids of what was asked here

const stopButton = document.querySelector("#stop");
let over = 0; // the close code after which this page sends nothing more

const banner = new Banner();
const thread = new Thread();
const composer = new Composer(user, conversation, ask);
const models = new Models(() => socket.send({ type: "models" }), (name) => settings.chooseModel(name));
const settings = new Settings(user, conversation, models);
const socket = new Socket(address, { frame: receive, closed: lost, offline, ended });
const asked = new Asked((frame) => socket.send(frame));

function address() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${location.host}/ws/chat/${conversation ?? "new"}/?html=1`;
}

function ask(frame) {
  // A prompt goes on from what is shown here, whichever branch that is.
  if (frame.type === "prompt" && thread.last) frame = { parent: thread.last, ...frame };
  if (!conversation && settings.ofNew) frame = { settings: settings.ofNew, ...frame };
  mine.add(frame.id);
  thread.toEnd();
  asked.ask(frame);
  if (over) ended(over);
  showStop();
}

function follow(reply) {
  socket.send({ type: "follow", job: reply.job, after: reply.seq, origin: reply.origin });
  if (reply.stopping) socket.send({ type: "cancel", job: reply.job });
}

// What the server's page shows, or what it answers to a change of it.
async function show(...how) {
  for (const reply of await thread.show(...(how.length ? how : [`/c/${conversation}/`]))) follow(reply);
  showStop();
}

const onFrame = {
  ...onNews,

  async hello(frame) {
    if (frame.user !== undefined && frame.user !== user) {
      // Somebody else signed in with this browser: what stands here isn't theirs.
      socket.end();
      ended(SIGNED_OUT);
      return;
    }
    workers = frame.workers;
    problems = [];
    onNews.title(frame);
    composer.configure(frame.limits);
    models.take(frame.models);
    settings.greeted(frame.settings);
    banner.back();
    composer.recovered();
    asked.connected();
    const again = greeted;
    greeted = true;
    for (const reply of thread.unfinished()) follow(reply);
    const missing = (frame.active ?? []).filter(({ job }) => !thread.ofJob(job));
    if (conversation && (again || missing.length)) await show().catch(() => {});
    for (const active of missing) {
      const reply = thread.shown(active.reply);
      if (!reply || reply.job === active.job) continue; // of a branch that isn't shown, or followed already
      reply.begin(active.job, active.state);
      follow(reply);
    }
    showStop();
  },

  models: (frame) => models.take(frame.models),

  async queued(frame) {
    if (!conversation && mine.has(frame.client_id)) adopt(frame);
    asked.answered(frame.client_id);
    composer.accepted(frame.client_id);
    if (frame.conversation !== conversation) return;
    const reply = thread.reply(frame);
    if (!reply) {
      // Asked elsewhere, on a branch that isn't shown here: this page follows it there, as a reload would.
      await show().catch(() => {});
      return;
    }
    reply.begin(frame.job);
    reply.queued(frame, workers);
    sayPlace(frame.job, frame.position, reply.status.textContent);
    showStop();
  },

  status(frame) {
    problems = frame.problems ?? [];
    workers = problems.some(({ code }) => code === "no_worker") ? 0 : undefined;
    banner.problems(problems);
    if (!problems.length) composer.recovered();
  },

  error(frame) {
    if (frame.ref === null) return;
    const kind = frame.code === "queue_unavailable" ? "outage" : "";
    if (asked.has(frame.ref)) {
      asked.answered(frame.ref);
      if (composer.unanswered?.id === frame.ref) composer.refused(frame.ref, frame.message, kind);
      else composer.complain(frame.message, kind);
      enableButtons();
    } else {
      const reply = thread.ofJob(frame.ref);
      if (reply?.isUnfinished) reply.notStopped(frame.message);
    }
    showStop();
  },
};

const onReply = {
  started: (reply, frame) => {
    workers = undefined; // at least one is there
    reply.started(frame);
    if (!reply.seq) say(gettext("Reply started"));
  },
  prefill: (reply, frame) => reply.prefill(frame),
  html: (reply, frame) => {
    reply.html(frame);
    // Taken in, also where a hidden tab doesn't paint.
    socket.send({ type: "ack", job: frame.job, seq: frame.seq });
  },
  finished: (reply, frame) => end(reply, frame, gettext("Reply complete")),
  cancelled: (reply, frame) => end(reply, frame, gettext("Reply stopped")),
  failed: (reply, frame) => end(reply, frame, gettext("Reply failed")),
  expired: (reply, frame) => end(reply, frame, gettext("The reply waited too long")),
};

function end(reply, frame, words) {
  reply.end(frame);
  sayEnd(words, reply);
  showStop();
}

function receive(frame) {
  if (Object.hasOwn(onFrame, frame.type)) onFrame[frame.type](frame);
  else if (Object.hasOwn(onReply, frame.type) && frame.conversation === conversation) {
    const reply = thread.ofJob(frame.job);
    if (reply) onReply[frame.type](reply, frame);
  }
}

// The page of a new conversation becomes that conversation's page.
function adopt(frame) {
  conversation = frame.conversation;
  document.body.dataset.conversation = conversation;
  history.replaceState(null, "", `/c/${conversation}/`);
  composer.belongsTo(conversation);
  settings.belongsTo(conversation);
  const title = titleFrom(frame.text ?? "") || gettext("Conversation");
  document.title = `${title} · Tokenline`;
  document.querySelector("#title").textContent = title;
  addConversation(conversation, title);
}

function lost(code, seconds) {
  if (code === TOO_LARGE && composer.unanswered) {
    asked.answered(composer.unanswered.id);
    composer.refused(composer.unanswered.id, gettext("This text is too large to send."));
  }
  asked.disconnected();
  if (code === TOO_MANY) banner.ended(gettext("Tokenline is open in too many tabs. Close some of them."));
  else banner.lost(seconds, code === TRY_AGAIN_LATER ? problems : []);
}

function offline() {
  asked.disconnected();
  banner.offline();
}

function ended(code) {
  over = code;
  asked.forget();
  enableButtons();
  if (composer.unanswered) composer.refused(composer.unanswered.id, gettext("Not sent. Your text is kept."));
  if (code === SIGNED_OUT) banner.ended(gettext("You were signed out."), gettext("Sign in"), `${login}?next=${encodeURIComponent(location.pathname)}`);
  else banner.ended(gettext("There is no such conversation."), gettext("Begin a new one"), "/");
}

function showStop() {
  stopButton.hidden = asked.size === 0 && thread.unfinished().length === 0;
}

function enableButtons() {
  for (const button of document.querySelectorAll(".meta button:disabled, .edit button:disabled")) button.disabled = false;
}

stopButton.addEventListener("click", () => {
  for (const id of asked.stop()) composer.refused(id, gettext("Not sent."));
  if (!asked.size) enableButtons();
  for (const reply of thread.unfinished()) {
    reply.stop();
    socket.send({ type: "cancel", job: reply.job });
  }
  showStop();
});

document.querySelector("#thread").addEventListener("click", (event) => {
  const button = event.target.closest(".meta button");
  if (!button) return;
  const { message } = button.closest("article").dataset;
  button.disabled = true;
  const isAnother = button.dataset.ask === "regenerate"; // by the model that is chosen now
  ask({ type: button.dataset.ask, id: newId(), message, ...(isAnother && { model: composer.model }) });
});

for (const example of document.querySelectorAll("button.example")) {
  example.addEventListener("click", () => composer.write(example.dataset.text));
}

startTurning({ thread, composer, ask, say, show, conversation: () => conversation });
startContext(models);
startSidebar();
startCopying(document.querySelector("#thread"), say);
startKeyboard();
