// One WebSocket that comes back: waits longer after each failure, and wakes when the network or the tab does.
// Knows frames only as objects; what they mean is others' business.

const FIRST_DELAY = 500;
const LONGEST_DELAY = 10_000;
const SILENCE = 40_000; // the server speaks every 15 s; a browser that went offline keeps its socket "open"
const FINAL_CODES = [4401, 4404];

export class Socket {
  #address;
  #handlers;
  #socket = null;
  #timer = 0;
  #failures = 0;
  #heardAt = 0;
  #greeted = false;
  #ended = false;

  // address() gives the URL of the next try; handlers: frame(object), closed(code, seconds), ended(code)
  constructor(address, handlers) {
    this.#address = address;
    this.#handlers = handlers;
    addEventListener("online", () => this.#renew());
    document.addEventListener("visibilitychange", () => document.hidden || this.#wake());
    addEventListener("pageshow", (event) => event.persisted && this.#renew());
    setInterval(() => this.#check(), 5_000);
    this.#open();
  }

  // Only after the server's first frame: what was asked before it is sent by whoever hears it, and once.
  get isOpen() {
    return this.#greeted && this.#socket?.readyState === WebSocket.OPEN;
  }

  send(frame) {
    if (!this.isOpen) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  #open() {
    clearTimeout(this.#timer);
    if (this.#ended) return;
    const socket = new WebSocket(this.#address());
    this.#socket = socket;
    this.#greeted = false;
    this.#heardAt = performance.now();
    socket.onmessage = (event) => {
      if (socket !== this.#socket) return;
      this.#heardAt = performance.now();
      this.#failures = 0;
      this.#greeted = true;
      let frame;
      try {
        frame = JSON.parse(event.data);
      } catch {
        return;
      }
      this.#handlers.frame(frame);
    };
    socket.onclose = (event) => socket === this.#socket && this.#lost(event.code);
  }

  #lost(code) {
    this.#socket = null;
    if (FINAL_CODES.includes(code)) {
      this.#ended = true;
      this.#handlers.ended(code);
      return;
    }
    const slow = code === 4429 ? 3 : 1;
    const delay = slow * Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** this.#failures) * (0.8 + 0.2 * Math.random());
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#open(), delay);
    this.#handlers.closed(code, delay / 1000);
  }

  // A socket that looks open may be dead after the network was away: a new one is sure.
  #renew() {
    if (this.#ended) return;
    const old = this.#socket;
    this.#socket = null;
    old?.close();
    this.#open();
  }

  #wake() {
    if (!this.#socket) this.#open();
    else this.#check();
  }

  #check() {
    if (this.#socket && performance.now() - this.#heardAt > SILENCE) this.#renew();
  }
}
