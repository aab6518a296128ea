// One WebSocket that comes back: waits longer after each failure, and wakes when the network or the tab does.
// Knows frames only as objects, and `hello` as the first; what they mean is others' business.

const FIRST_DELAY = 500;
const LONGEST_DELAY = 10_000;
const SILENCE = 25_000; // the server speaks every 15 s; a browser that was cut off keeps its socket "open"
const OPENING = 15_000; // from a new socket to the server's first frame
const OFFLINE_DELAY = 3_000; // a server on the same machine is there without a network
const SIGNED_OUT = 4401;
const FINAL_CODES = [SIGNED_OUT, 4404];

export class Socket {
  #address;
  #handlers;
  #socket = null;
  #timer = 0;
  #failures = 0;
  #heardAt = 0;
  #greeted = false;
  #ended = false;

  // address() gives the URL of the next try; handlers: frame(object), closed(code, seconds), offline(), ended(code)
  constructor(address, handlers) {
    this.#address = address;
    this.#handlers = handlers;
    addEventListener("offline", () => this.#offline());
    addEventListener("online", () => this.#renew());
    document.addEventListener("visibilitychange", () => document.hidden || this.#wake());
    addEventListener("pageshow", (event) => event.persisted && this.#renew());
    setInterval(() => this.#check(), 5_000);
    this.#open();
  }

  // Only after the server's `hello`: what was asked before it is sent by whoever hears it, and once.
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
      let frame;
      try {
        frame = JSON.parse(event.data);
      } catch {
        return;
      }
      if (frame.type === "hello") {
        this.#failures = 0;
        this.#greeted = true;
      }
      this.#handlers.frame(frame);
    };
    socket.onclose = (event) => socket === this.#socket && this.#lost(event.code);
  }

  // Never again; whoever calls it says why.
  end() {
    this.#ended = true;
    this.#drop();
  }

  #lost(code) {
    this.#socket = null;
    if (code === SIGNED_OUT && this.#greeted) {
      // The cookie may have changed meanwhile, with a new password or a new sign-in: ask with the one there is now.
      this.#open();
      return;
    }
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
    this.#drop();
    this.#open();
  }

  #drop() {
    clearTimeout(this.#timer);
    const old = this.#socket;
    this.#socket = null;
    old?.close();
  }

  #offline() {
    if (this.#ended) return;
    this.#drop();
    this.#timer = setTimeout(() => this.#open(), OFFLINE_DELAY);
    this.#handlers.offline();
  }

  #wake() {
    if (!this.#socket) this.#open();
    else this.#check();
  }

  #check() {
    const patience = this.#greeted ? SILENCE : OPENING;
    if (!this.#socket || performance.now() - this.#heardAt <= patience) return;
    this.#handlers.closed(0, 0);
    this.#renew();
  }
}
