// The copy buttons of code blocks, whichever of them exist at the time.

export function startCopying(container, say) {
  container.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await copy(button.closest(".code").querySelector("pre").textContent);
    button.textContent = "Copied";
    say("Code copied");
    setTimeout(() => (button.textContent = "Copy"), 1_500);
  });
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
