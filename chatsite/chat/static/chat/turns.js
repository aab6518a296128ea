// What a person does with what was said: looks at another version, edits, copies, judges, clears the context.
import { newId } from "./composer.js";
import { copyLater } from "./copy.js";
import { gettext, interpolate } from "./gettext.js";
import { reason } from "./thread.js";
import { dress, fromTemplate } from "./tools.js";

const UNREACHED = gettext("That could not be done just now. Try again when the connection is back.");
const threadBox = document.querySelector("#thread");

// page: { thread, composer, ask(frame), say(text), show(address, options, reader), conversation() }
export function startTurning(page) {
  const { thread, composer } = page;

  const address = (article, what) => `/c/${page.conversation()}/${article.dataset.message}/${what}/`;

  async function post(article, what, fields) {
    const response = await fetch(address(article, what), form(fields));
    if (!response.ok) throw new Error(await reason(response));
  }

  async function step(article, to) {
    const place = [...threadBox.children].indexOf(article);
    await page.show(address(article, "step"), form({ to }), article);
    const now = threadBox.children[place];
    const button = now?.querySelector(`[data-turn="${to}"]`);
    (button?.disabled ? now.querySelector(".stepper button:enabled") : button)?.focus();
    const { number, count } = now?.dataset ?? {};
    page.say(interpolate(gettext("Version %(number)s of %(count)s"), { number, count }));
  }

  function edit(article) {
    const editor = fromTemplate("edit-form");
    const box = editor.querySelector("textarea");
    const save = editor.querySelector("[type=submit]");
    let sent = {};
    const grow = () => {
      box.style.height = "auto";
      box.style.height = `${box.scrollHeight + 2}px`;
      save.disabled = !box.value.trim();
    };
    box.value = article.querySelector(".text").textContent;
    box.addEventListener("input", grow);
    box.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") close(article);
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) editor.requestSubmit(save.disabled ? null : save);
    });
    editor.addEventListener("submit", (event) => {
      event.preventDefault();
      if (save.disabled) return;
      // The same text saved again keeps its id and can't become a second job.
      if (sent.text !== box.value) sent = { text: box.value, id: newId() };
      save.disabled = true;
      composer.complain("");
      page.ask({ type: "prompt", ...sent, parent: thread.parentOf(article), model: composer.model });
    });
    article.classList.add("editing");
    article.append(editor);
    grow();
    box.focus();
  }

  function close(article) {
    article.querySelector("form.edit").remove();
    article.classList.remove("editing");
    article.querySelector('[data-turn="edit"]').focus();
  }

  async function copyReply(article) {
    const text = fetch(address(article, "markdown"), { redirect: "error" }).then(async (response) => {
      if (!response.ok) throw new Error(await reason(response));
      return response.text();
    });
    await copyLater(text);
    page.say(gettext("Reply copied"));
    const button = article.querySelector('[data-turn="copy"]');
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1_500);
  }

  // Pressed again it is taken back.
  async function judge(article, turn) {
    const verdict = article.dataset.verdict === turn ? "" : turn;
    await post(article, "feedback", { verdict });
    dress(article, { verdict, word: "" });
    article.querySelector("form.word")?.remove();
    if (verdict) askWhy(article, verdict);
    page.say(verdict ? gettext("Thank you") : gettext("Taken back"));
  }

  function askWhy(article, verdict) {
    const why = fromTemplate("word-form");
    const box = why.querySelector("input");
    const done = () => {
      why.remove();
      article.querySelector(`[data-turn="${verdict}"]`).focus();
    };
    why.addEventListener("keydown", (event) => event.key === "Escape" && !event.isComposing && done());
    why.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(async () => {
        await post(article, "feedback", { verdict, word: box.value });
        dress(article, { word: box.value });
        done();
        page.say(gettext("Thank you"));
      });
    });
    article.querySelector(".tools").after(why);
  }

  async function clear(article, cleared) {
    try {
      await post(article, "context", { cleared: cleared ? "1" : "0" });
    } catch (error) {
      await page.show().catch(() => {});
      throw error;
    }
    const { message } = article.dataset;
    dress(article, cleared ? { message, cleared: "" } : { message });
    if (cleared) thread.toEnd();
    document.querySelector("#prompt").focus();
    page.say(cleared ? gettext("Context cleared") : gettext("Context kept"));
  }

  async function attempt(act) {
    try {
      await act();
      composer.recovered();
    } catch (error) {
      composer.complain(error instanceof TypeError ? UNREACHED : error.message, "outage");
    }
  }

  const turns = {
    previous: (article) => step(article, "previous"),
    next: (article) => step(article, "next"),
    edit,
    "cancel-edit": close,
    copy: copyReply,
    up: (article) => judge(article, "up"),
    down: (article) => judge(article, "down"),
    "undo-clear": (article) => clear(article, false),
  };

  threadBox.addEventListener("click", (event) => {
    const button = event.target.closest("[data-turn]");
    if (button) attempt(() => turns[button.dataset.turn](button.closest("article")));
  });
  document.querySelector("#clear-context").addEventListener("click", () => {
    if (threadBox.lastElementChild) attempt(() => clear(threadBox.lastElementChild, true));
  });
}

function form(fields) {
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
  return { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams(fields), redirect: "error" };
}
