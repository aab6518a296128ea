// How full the model's context is after the last reply, and what that means.
import { NEARLY_FULL, notRead, tokensUsed, used } from "./setting_words.js";

const NEARLY = 0.75; // the engine keeps up to a quarter for the reply
const thread = document.querySelector("#thread");
const box = document.querySelector("#context");
const meter = box.querySelector("meter");
const words = box.querySelector("span");
const word = document.querySelector("#context-word");

export function startContext(models) {
  const show = () => {
    const last = lastCounted();
    const tokens = Number(last?.dataset.tokens ?? 0);
    const context = models.current?.context;
    box.hidden = !tokens;
    meter.hidden = !context;
    if (context) {
      meter.max = context;
      meter.value = Math.min(tokens, context);
    }
    const isNear = Boolean(context) && tokens >= NEARLY * context;
    box.classList.toggle("full", isNear);
    words.textContent = context ? used(tokens, context) : tokensUsed(tokens);
    const dropped = last?.dataset.model === models.current?.name ? Number(last?.dataset.dropped ?? 0) : 0;
    const said = dropped ? notRead(dropped) : isNear ? NEARLY_FULL : "";
    if (word.textContent !== said) word.textContent = said;
  };
  new MutationObserver(show).observe(thread, { childList: true });
  new MutationObserver(show).observe(thread, { subtree: true, attributeFilter: ["data-tokens", "data-cleared"] });
  models.addEventListener("change", show);
  show();
}

// The last reply of which the tokens are known, unless the context was cleared since.
function lastCounted() {
  for (const article of [...thread.children].reverse()) {
    if ("cleared" in article.dataset) return null;
    if (article.dataset.tokens) return article;
  }
  return null;
}
