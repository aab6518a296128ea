// The panel of settings, for this conversation or for the one that the next prompt begins.
//
// What can be set and within which range is the server's to say; it answers with a text for each field that is wrong.
import * as words from "./setting_words.js";
import { toast } from "./toast.js";

const OF_PERSON = "/settings/";
const REOPENABLE = 10_000; // ms

export class Settings {
  #dialog = document.querySelector("#settings");
  #form = this.#dialog.querySelector("form");
  #alert = this.#dialog.querySelector("footer .error");
  #opener = document.querySelector("#open-settings");
  #models;
  #conversation;
  #key;
  #mine = {};
  #stored = ""; // what the fields held when the panel was opened or saved last
  #kept; // for the conversation that the next prompt begins
  #others; // this person's other tabs

  constructor(user, conversation, models) {
    this.#models = models;
    this.#conversation = conversation;
    this.#key = `tokenline:settings:${user}`;
    this.#kept = conversation ? null : this.#keptBefore();
    this.#opener.addEventListener("click", () => this.#open());
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
    this.#form.addEventListener("input", ({ target }) => this.#complain(target.name, ""));
    this.#form.elements.model.addEventListener("change", () => this.#showModel(this.#form.elements.model.value));
    const acts = { close: () => this.#dialog.close(), defaults: () => this.#fill({}), mine: () => this.#fill(this.#mine) };
    this.#dialog.addEventListener("click", (event) => acts[event.target.closest("[data-set]")?.dataset.set]?.());
    this.#dialog.addEventListener("close", () => {
      if (this.#written !== this.#stored) toast(words.UNSAVED, REOPENABLE, words.REOPEN, () => this.#dialog.showModal());
    });
    this.#others = new BroadcastChannel(this.#key);
    this.#others.addEventListener("message", ({ data }) => {
      if (data.conversation === this.#conversation) this.#show(data.settings);
    });
    models.addEventListener("change", () => this.#dialog.open && this.#showModel(this.#form.elements.model.value));
  }

  // What `hello` said; a conversation that hasn't begun has what was set on this page.
  greeted(settings) {
    const kept = this.#kept;
    this.#show(kept && "system_prompt" in kept ? kept : { ...settings, ...kept });
  }

  // For the prompt that begins a conversation.
  get ofNew() {
    const kept = this.#kept;
    if (!kept) return null;
    const { model, system_prompt, ...params } = kept;
    // One that is offered no longer is shown as the default one, and is the default one.
    return { model: this.#models.named(model)?.name === model ? model : "", system_prompt, params };
  }

  belongsTo(conversation) {
    this.#keep(null);
    this.#conversation = conversation;
  }

  async chooseModel(name) {
    const model = this.#models.named(name)?.default ? "" : name;
    if (!this.#conversation) {
      this.#keep({ ...this.#kept, model });
      return;
    }
    try {
      const answer = await this.#ask({ model });
      if (!answer.ok) throw new Error(answer.status);
      this.#tell((await answer.json()).settings);
    } catch {
      toast(words.MODEL_NOT_KEPT);
    }
  }

  // A conversation that hasn't begun is each tab's own.
  #tell(settings) {
    if (this.#conversation) this.#others.postMessage({ conversation: this.#conversation, settings });
  }

  get #address() {
    return this.#conversation ? `/c/${this.#conversation}/settings/` : OF_PERSON;
  }

  #ask(fields) {
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    const posted = { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams(fields) };
    return fetch(this.#address, { redirect: "error", ...(fields && posted) });
  }

  async #open() {
    this.#models.refresh();
    try {
      const answer = await this.#ask();
      if (!answer.ok) throw new Error(answer.status);
      const { settings, defaults } = await answer.json();
      this.#mine = defaults;
      this.#fill({ ...settings, ...(this.#conversation ? {} : this.#kept) });
    } catch {
      toast(words.UNREAD);
      return;
    }
    this.#form.elements.as_default.checked = false;
    this.#form.querySelector('[data-set="mine"]').hidden = !Object.values(this.#mine).some(Boolean);
    this.#stored = this.#written;
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#form.querySelector(".body").scrollTop = 0;
  }

  #fill(values) {
    for (const field of this.#fields) {
      field.value = values[field.name] ?? "";
      this.#complain(field.name, "");
    }
    this.#showModel(values.model);
    this.#say("");
  }

  get #written() {
    return new URLSearchParams(new FormData(this.#form)).toString();
  }

  get #fields() {
    return [...this.#form.elements].filter(({ name }) => name && name !== "as_default");
  }

  #showModel(name) {
    const { model, max_new_tokens: longest } = this.#form.elements;
    this.#models.fill(model, name);
    model.closest(".setting").hidden = !this.#models.isChoice;
    const tokens = this.#models.named(name)?.default_new_tokens;
    if (tokens) longest.placeholder = tokens;
  }

  async #save() {
    const fields = Object.fromEntries(new FormData(this.#form));
    if (!this.#models.isChoice) delete fields.model;
    else if (this.#models.named(fields.model)?.default) fields.model = "";
    try {
      const answer = await this.#ask(fields);
      const { settings, errors } = await answer.json();
      if (errors) this.#refused(errors);
      else this.#saved(settings);
    } catch {
      this.#say(words.UNREACHED);
    }
  }

  #saved(settings) {
    if (!this.#conversation) this.#keep(settings);
    this.#show(settings);
    this.#tell(settings);
    this.#stored = this.#written;
    this.#dialog.close();
    toast(words.SAVED);
  }

  #refused(errors) {
    for (const { name } of this.#fields) this.#complain(name, errors[name] ?? "");
    this.#say(words.MARKED);
    this.#form.querySelector("[aria-invalid]")?.focus();
  }

  #complain(name, text) {
    const box = this.#form.querySelector(`#error-${CSS.escape(name)}`);
    if (!box) return;
    box.textContent = text;
    box.hidden = !text;
    const field = this.#form.elements[name];
    if (text) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    if (!this.#form.querySelector("[aria-invalid]")) this.#say("");
  }

  #say(text) {
    this.#alert.textContent = text;
    this.#alert.hidden = !text;
  }

  #show({ model, changed, ...rest }) {
    this.#models.choose(model);
    const isChanged = changed || Object.values(rest).some(Boolean);
    const name = isChanged ? words.SETTINGS_CHANGED : words.SETTINGS;
    this.#opener.classList.toggle("changed", Boolean(isChanged));
    this.#opener.title = name;
    this.#opener.setAttribute("aria-label", name);
  }

  #keep(settings) {
    this.#kept = settings;
    try {
      if (settings) sessionStorage.setItem(this.#key, JSON.stringify(settings));
      else sessionStorage.removeItem(this.#key);
    } catch {
      // Storage is forbidden: they live as long as the page.
    }
  }

  #keptBefore() {
    try {
      return JSON.parse(sessionStorage.getItem(this.#key));
    } catch {
      return null;
    }
  }
}
