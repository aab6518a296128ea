// News of a conversation beside its replies: its title, and what was done with a message in another tab.
import { retitle } from "./keeping.js";
import { entryOf } from "./sidebar.js";
import { dress } from "./tools.js";

const isOfThisPage = (frame) => frame.conversation === document.body.dataset.conversation;

export const onNews = {
  title(frame) {
    if (isOfThisPage(frame) && frame.title) retitle(entryOf(frame.conversation), frame.title);
  },

  marked(frame) {
    const { message, verdict, word, cleared } = frame;
    const article = [...document.querySelector("#thread").children].find((each) => each.dataset.message === message);
    if (!article || !isOfThisPage(frame)) return;
    if (verdict !== undefined) dress(article, { verdict, word });
    if (cleared !== undefined) dress(article, cleared ? { message, cleared: "" } : { message });
  },
};
