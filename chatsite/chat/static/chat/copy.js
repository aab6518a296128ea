// The copy buttons of code blocks, whichever of them exist at the time.
import { gettext } from "./gettext.js";

export function startCopying(container, say) {
  container.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await copy(button.closest(".code").querySelector("pre").textContent);
    button.textContent = gettext("Copied");
    say(gettext("Code copied"));
    setTimeout(() => (button.textContent = gettext("Copy")), 1_500);
  });
}

// What is still on its way: the browser must be told at once, while the click counts as the person's wish.
export async function copyLater(promise) {
  const blob = promise.then((text) => new Blob([text], { type: "text/plain" }));
  blob.catch(() => {}); // whoever waits below hears of it
  try {
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
  } catch {
    await copy(await promise);
  }
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // There is no clipboard on plain http.
    const box = document.createElement("textarea");
    box.value = text;
    box.className = "hidden";
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
}
