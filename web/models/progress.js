// How far a download, an import or a check is: many files as one, with rate and time left, ten times a
// second.
//
// Counterpart: types.js (StoreProgress); headrace/models/progress.py is the Python twin. Not a clock of its
// own: it speaks only of bytes that have come, but of the last ones too, when nothing follows them.

/** @import { StoreProgress } from "./types.js" */

/** The rate is that of the last seconds: long enough to be calm, short enough to be true. */
const WINDOW_MS = 5000;
/** Before this the rate is not known. */
const SETTLED_MS = 500;
const INTERVAL_MS = 100;

/** Adds up the bytes of several files. */
export class ProgressMeter {
  #phase;
  #report;
  #now;
  /** @type {(number | null)[]} */ #totals;
  /** @type {(number | null)[]} null until the first word of a file */ #loaded;
  /** @type {{at: number, moved: number}[]} */ #samples = [];
  /** Bytes that came in this session; what was there before says nothing about the rate. */
  #moved = 0;
  #lastReport = -Infinity;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #later;

  /**
   * @param {"download" | "import" | "verify"} phase
   * @param {(number | null)[]} totals bytes of each file, null where unknown
   * @param {(progress: StoreProgress) => void} report
   * @param {() => number} [now] milliseconds
   */
  constructor(phase, totals, report, now = () => performance.now()) {
    this.#phase = phase;
    this.#totals = [...totals];
    this.#loaded = totals.map(() => null);
    this.#report = report;
    this.#now = now;
    this.#samples.push({ at: now(), moved: 0 });
  }

  /**
   * The first word of a file may count bytes of an earlier session.
   * @param {number} index of the file
   * @param {number} loaded
   * @param {number | null} total
   */
  update(index, loaded, total) {
    const before = this.#loaded[index];
    if (before !== null && loaded > before) this.#moved += loaded - before;
    this.#loaded[index] = loaded;
    this.#totals[index] = total;
    this.#tell();
  }

  /** Says the last word, also where no total was ever told. */
  finish() {
    this.#totals = this.#loaded.map((loaded) => loaded ?? 0);
    this.#tell();
  }

  /** Says nothing any more. */
  stop() {
    clearTimeout(this.#later);
  }

  /** @param {boolean} [isDue] whether the interval has passed, whatever the clock says */
  #tell(isDue = false) {
    clearTimeout(this.#later);
    const now = this.#now();
    const all = this.#loaded.reduce((/** @type {number} */ sum, loaded) => sum + (loaded ?? 0), 0);
    const total = this.#totals.includes(null)
      ? null
      : this.#totals.reduce((/** @type {number} */ sum, size) => sum + (size ?? 0), 0);
    const wait = INTERVAL_MS - (now - this.#lastReport);
    if (!isDue && wait > 0 && all !== total) {
      this.#later = setTimeout(() => this.#tell(true), wait);
      return;
    }
    this.#lastReport = now;

    this.#samples.push({ at: now, moved: this.#moved });
    while (this.#samples.length > 2 && this.#samples[1].at <= now - WINDOW_MS) this.#samples.shift();
    const [oldest] = this.#samples;
    const elapsed = now - oldest.at;
    const rate = elapsed < SETTLED_MS ? null : ((this.#moved - oldest.moved) / elapsed) * 1000;
    this.#report({
      phase: this.#phase,
      loaded: all,
      total,
      bytesPerSecond: rate,
      secondsLeft: rate !== null && rate > 0 && total !== null ? Math.max(0, total - all) / rate : null,
    });
  }
}
