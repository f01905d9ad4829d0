// Brings profiles from the server: at once when asked, then every few seconds, one request at a time.

const EVERY_MS = 3000;
const PATIENCE_MS = 20000;

export class Feed {
  /** `address()` is what to ask for, `moving()` whether to ask again; `on`: `answer(json)`, `failure(text)`. */
  constructor(address, moving, on) {
    Object.assign(this, { address, moving, on, paused: false });
    document.addEventListener('visibilitychange', () => { if (!document.hidden && this.due) this.load(); });
  }

  /** Loads now; what is under way is dropped. */
  async load() {
    clearTimeout(this.timer);
    this.due = false;
    this.request?.abort();
    const request = (this.request = new AbortController());
    const patience = setTimeout(() => request.abort(), PATIENCE_MS);
    const started = performance.now();
    let outcome;
    try {
      const response = await fetch(this.address(), { signal: request.signal });
      if (!response.ok) throw new Error((await response.text()).slice(0, 300) || `status ${response.status}`);
      const answer = await response.json();
      outcome = () => this.on.answer(answer);
    } catch (problem) {
      outcome = () => this.on.failure(problem.name === 'Error' ? problem.message : 'The service does not answer');
    }
    clearTimeout(patience);
    if (this.request !== request) return;
    outcome();
    // What takes long to load is asked for less often.
    if (!this.paused && this.moving()) this.timer = setTimeout(() => this.next(), Math.max(EVERY_MS, 8 * (performance.now() - started)));
  }

  /** A page out of sight waits until it is looked at. */
  next() {
    this.due = document.hidden;
    if (!this.due) this.load();
  }

  pause(paused) {
    this.paused = paused;
    clearTimeout(this.timer);
    if (!paused) this.load();
  }
}
