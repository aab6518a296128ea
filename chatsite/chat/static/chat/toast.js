// A word about what was done, below, for some seconds, with one thing that may be done about it.

const box = document.querySelector("#toast"); // empty, never hidden: screen readers read what changes in it
let timer = 0;

// milliseconds: 0 until the next one
export function toast(text, milliseconds = 6_000, action = "", act = undefined) {
  clearTimeout(timer);
  const words = document.createElement("span");
  words.textContent = text;
  box.replaceChildren(words);
  if (action) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = action;
    button.addEventListener("click", () => {
      box.replaceChildren();
      act();
    });
    box.append(button);
  }
  if (milliseconds) timer = setTimeout(() => box.replaceChildren(), milliseconds);
}
