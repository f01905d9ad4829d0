// Brings profiles from the server: at once when asked, then every few seconds, one request at a time.

const EVERY_MS = 3000;
const PATIENCE_MS = 20000;

export class Feed {
  /** `on.answer(json)`, `on.failure(text)`. `address()` is asked before each request; `moving()` whether to go on. */
  constructor(address, moving, on) {
    Object.assign(this, { address, moving, on, paused: false });
    document.addEventListener('visibilitychange', () => { if (!document.hidden && this.due) this.load(); });
  }

  /** Loads now; an older request under way is dropped. */
  async load() {
    clearTimeout(this.timer);
    this.due = false;
    this.request?.abort();
    const request = (this.request = new AbortController());
    const giveUp = setTimeout(() => request.abort('no answer'), PATIENCE_MS);
    const started = performance.now();
    try {
      const response = await fetch(this.address(), { signal: request.signal, headers: { accept: 'application/json' } });
      if (!response.ok) throw new Error((await response.text()).slice(0, 300) || `status ${response.status}`);
      const answer = await response.json();
      if (this.request === request) this.on.answer(answer);
    } catch (problem) {
      if (this.request !== request) return;
      this.on.failure(problem instanceof TypeError || request.signal.aborted ? 'no answer from the service' : problem.message);
    } finally {
      clearTimeout(giveUp);
    }
    // A profile that takes long to load is asked for less often.
    if (this.request === request) this.later(Math.max(EVERY_MS, 8 * (performance.now() - started)));
  }

  later(ms) {
    if (this.paused || !this.moving()) return;
    this.timer = setTimeout(() => {
      if (document.hidden) this.due = true;
      else this.load();
    }, ms);
  }

  pause(paused) {
    this.paused = paused;
    clearTimeout(this.timer);
    if (!paused) this.load();
  }
}
