// Brings profiles from the server: at once when asked, then every few seconds, one request at a time.

const EVERY_MS = 3000;
const PATIENCE_MS = 20000;

export class Feed {
  /** `address()` is what to ask for, `moving()` whether to ask again; `on`: `answer(json)`, `failure(text)`. */
  constructor(address, moving, on) {
    Object.assign(this, { address, moving, on, paused: false });
  }

  /** Loads now, because the reader asked or by itself; what is under way is dropped. */
  async load(itself = false) {
    clearTimeout(this.timer);
    // What the reader asked for and did not get is still asked for.
    this.itself = itself && !this.failed;
    this.request?.abort();
    const request = (this.request = new AbortController());
    const patience = setTimeout(() => request.abort(), PATIENCE_MS);
    const started = performance.now();
    let answer, failure;
    try {
      const response = await fetch(this.address(), { signal: request.signal });
      if (response.ok) answer = await response.json();
      else failure = (await response.text()).slice(0, 300) || `The service answers ${response.status}`;
    } catch {
      failure = 'The service does not answer';
    }
    clearTimeout(patience);
    if (this.request !== request) return;
    this.failed = !answer;
    if (answer) this.on.answer(answer);
    else this.on.failure(failure);
    // What takes long to load is asked for less often; a page out of sight waits until it is looked at.
    const wait = Math.max(EVERY_MS, 8 * (performance.now() - started));
    const again = () => {
      if (document.hidden) document.addEventListener('visibilitychange', again, { once: true });
      else if (!this.paused) this.load(true);
    };
    if (!this.paused && this.moving()) this.timer = setTimeout(again, wait);
  }

  pause(paused) {
    this.paused = paused;
    clearTimeout(this.timer);
    if (!paused) this.load();
    else if (this.itself) {
      this.request.abort();
      this.request = null;
    }
  }
}
