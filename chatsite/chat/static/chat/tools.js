// The small buttons of a message: its versions, editing, copying, thumbs. What they do is in turns.js.

export function fromTemplate(id) {
  return document.querySelector(`template#${id}`).content.firstElementChild.cloneNode(true);
}

// Makes an article's tools, or brings them up to date with what the server says of it.
export function dress(article, news = {}) {
  for (const name of ["number", "count", "verdict", "word"]) {
    if (news[name] !== undefined) article.dataset[name] = news[name];
  }
  const isReply = article.matches(".reply");
  const tools = article.querySelector(".tools") ?? fromTemplate(isReply ? "reply-tools" : "prompt-tools");
  if (!tools.parentElement) article.append(tools);
  showVersions(article, tools);
  if (!isReply) return;
  for (const button of tools.querySelectorAll("[aria-pressed]")) {
    button.setAttribute("aria-pressed", String(button.dataset.turn === article.dataset.verdict));
  }
  if (news.message !== undefined) article.toggleAttribute("data-cleared", news.cleared !== undefined);
  const line = article.querySelector(".cleared");
  if (!article.hasAttribute("data-cleared")) line?.remove();
  else if (!line) article.append(fromTemplate("cleared-line"));
}

function showVersions(article, tools) {
  const { number, count } = article.dataset;
  let stepper = tools.querySelector(".stepper");
  if (!(count > 1)) {
    stepper?.remove();
    return;
  }
  if (!stepper) {
    stepper = fromTemplate("stepper");
    tools.prepend(stepper);
  }
  stepper.querySelector(".place").textContent = `${number}/${count}`;
  stepper.querySelector('[data-turn="previous"]').disabled = number <= 1;
  stepper.querySelector('[data-turn="next"]').disabled = Number(number) >= Number(count);
}
