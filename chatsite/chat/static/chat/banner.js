// The quiet line that says when the connection is lost, counts down to the next try, and says when it is back.

export class Banner {
  #banner = document.querySelector("#banner");
  #timer = 0;

  lost(seconds) {
    const until = performance.now() + seconds * 1000;
    this.#every(() => {
      const left = Math.ceil((until - performance.now()) / 1000);
      this.#show(left > 0 ? `Connection lost, trying again in ${left} s` : "Connection lost, trying again");
    });
  }

  back() {
    clearInterval(this.#timer);
    if (this.#banner.hidden) return;
    this.#show("Connected again");
    this.#timer = setTimeout(() => (this.#banner.hidden = true), 2_000);
  }

  ended(text, link, address) {
    clearInterval(this.#timer);
    this.#show(`${text} `);
    if (!link) return;
    const anchor = document.createElement("a");
    anchor.href = address;
    anchor.textContent = link;
    this.#banner.append(anchor);
  }

  #every(update) {
    clearInterval(this.#timer);
    update();
    this.#timer = setInterval(update, 500);
  }

  #show(text) {
    if (this.#banner.textContent !== text) this.#banner.textContent = text;
    this.#banner.hidden = false;
  }
}
