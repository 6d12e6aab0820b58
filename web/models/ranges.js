// Which bytes of a file have come: ranges from a first byte to the one behind the last, sorted, apart.
//
// Counterparts: journal.js writes them down, partial.js the bytes themselves; Ranges in
// headrace/models/journal.py is the Python twin.

/** @typedef {[number, number]} Range first byte, and the one behind the last */

export class Ranges {
  /** @type {Range[]} */ #ranges = [];

  /** @param {Iterable<Range>} [ranges] in any order */
  constructor(ranges = []) {
    for (const [start, end] of ranges) this.add(start, end);
  }

  /**
   * @param {number} start
   * @param {number} end
   * @returns {number} how many of these bytes are new
   */
  add(start, end) {
    if (start >= end) return 0;
    const before = this.total;
    const first = this.#ranges.findIndex((range) => range[1] >= start);
    let from = first < 0 ? this.#ranges.length : first;
    let until = from;
    let [low, high] = [start, end];
    for (; until < this.#ranges.length && this.#ranges[until][0] <= end; until++) {
      low = Math.min(low, this.#ranges[until][0]);
      high = Math.max(high, this.#ranges[until][1]);
    }
    this.#ranges.splice(from, until - from, [low, high]);
    return this.total - before;
  }

  /** Bytes in all. */
  get total() {
    return this.#ranges.reduce((sum, [start, end]) => sum + end - start, 0);
  }

  /** Bytes from the beginning on, without a gap. */
  get frontier() {
    const [first] = this.#ranges;
    return first && first[0] === 0 ? first[1] : 0;
  }

  /**
   * @param {number} start
   * @param {number} end
   * @returns {Range[]} what is missing between these bytes
   */
  gaps(start, end) {
    /** @type {Range[]} */
    const missing = [];
    for (const [first, last] of this.#ranges) {
      if (last <= start) continue;
      if (first >= end) break;
      if (first > start) missing.push([start, first]);
      start = last;
    }
    if (start < end) missing.push([start, end]);
    return missing;
  }

  /** @returns {Range[]} */
  toList() {
    return this.#ranges.map(([start, end]) => [start, end]);
  }
}
