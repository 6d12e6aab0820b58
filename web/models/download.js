// Fetches one published file: in parallel ranges, again and again until all has come, resuming what has.
//
// Counterparts: transport.js makes one request, partial.js holds the bytes, retries.js knows patience;
// headrace/models/download.py is the Python twin. Knows nothing of models that are stored already.

import { HeadraceError } from "../errors.js";
import { SNIFF_BYTES, requireGguf } from "./gguf.js";
import { HashPump } from "./hash_pump.js";
import { Partial } from "./partial.js";
import { sizeBy } from "./probe.js";
import { Ranges } from "./ranges.js";
import { Retries, failure, requireFile, requireNotAborted } from "./retries.js";
import { Transient, request } from "./transport.js";

/** @import { Published } from "./probe.js" */
/** @import { SplitSizes } from "./partial.js" */
/** @import { Answer } from "./transport.js" */
/** @import { FetchedFile, RemoteFile, Storage } from "./types.js" */

/** What one request asks for at most. */
const GAP_BYTES = 16 * 1024 * 1024;
/** Of a small file, a killed worker loses so much; of a large one, no more than a five hundredth of it. */
const JOURNAL_BYTES = 512 * 1024;
const JOURNAL_PARTS = 512;
const CONNECTIONS = 4;

/** After these there is nothing worth keeping. */
const NOTHING_KEPT = new Set(["hash_mismatch", "model_invalid", "model_truncated", "storage_full"]);

/** The file is another one than the one that has come so far. */
class Changed extends Error {}

/**
 * @typedef {object} OwnFetchOptions
 * @property {Storage} storage
 * @property {(loaded: number, total: number | null) => void} [onBytes] `total` null when the server does not tell
 * @property {AbortSignal} [signal] ends it; what has come is kept
 * @property {Published | null} [published] what a probe has found just now, so that it is not asked again
 * @property {number} [connections] default 4
 * @property {number} [stallMs] no byte for so long cuts a connection, default 30 s
 * @property {number} [backoffMs] the first pause after a failure, default 250
 * @property {number} [gapBytes] of one request at most, default 16 MiB
 * @property {number} [journalBytes] between two journals, default 512 KiB, or more for a large file
 * @property {typeof globalThis.fetch} [fetch]
 */

/** @typedef {OwnFetchOptions & SplitSizes} FetchOptions */

/**
 * Whoever calls this holds the lock of the file's download.
 * @param {RemoteFile} file
 * @param {FetchOptions} options
 * @returns {Promise<FetchedFile>}
 * @throws {HeadraceError} download_failed (gone, forbidden, or broken too often) and cancelled: what has come
 *   is kept; hash_mismatch, model_invalid, model_truncated, storage_full: nothing is
 */
export async function fetchFile(file, options) {
  for (let tries = 1; ; tries++) {
    const partial = await Partial.open(options.storage, file, options);
    const download = new Download(file, partial, options);
    try {
      return await download.run(tries === 1 ? (options.published ?? null) : null);
    } catch (error) {
      const changed = error instanceof Changed;
      if (changed || (error instanceof HeadraceError && NOTHING_KEPT.has(error.code))) await partial.discard();
      if (!changed) throw error;
      if (tries === 2) throw failure(file, "it changes while it is being downloaded");
    } finally {
      await partial.settle();
    }
  }
}

class Download {
  #file;
  #partial;
  #options;
  #pump;
  #retries;
  /** Ends all requests, when one part of the download has failed or the caller aborts. */
  #ending = new AbortController();
  /** @type {unknown} why they were ended, unless by the caller */ #cause;
  /** @type {[number, number][]} being fetched now */ #claimed = [];
  /** Whether the server can be asked for ranges. */ #ranged = true;
  /** Whether a body that is the whole file is being read. */ #wholeBody = false;
  /** Whether it is known what the file is. */ #known;
  #sniffed;
  #expected;
  #arrived = 0;
  #unsaved = 0;
  /** @type {Promise<void> | null} */ #saving = null;

  /**
   * @param {RemoteFile} file
   * @param {Partial} partial
   * @param {FetchOptions} options
   */
  constructor(file, partial, options) {
    this.#file = file;
    this.#partial = partial;
    this.#options = options;
    this.#pump = new HashPump(partial);
    this.#retries = new Retries(file, { backoffMs: options.backoffMs, signal: this.#ending.signal });
    this.#known = this.#sniffed = partial.ranges.total > 0;
    this.#expected = file.sha256;
  }

  /**
   * @param {Published | null} published
   * @returns {Promise<FetchedFile>}
   */
  async run(published) {
    const { signal } = this.#options;
    requireNotAborted(signal);
    const abort = () => this.#ending.abort(signal?.reason);
    signal?.addEventListener("abort", abort);
    try {
      if (published) await this.#seed(published);
      this.#tell();
      const arriving = this.#fetchWhatIsMissing();
      await this.#all([arriving, this.#pump.run(this.#ending.signal)]);
      requireNotAborted(signal);
      const fetched = await this.#partial.finish();
      this.#requireHash(fetched.part.sha256);
      return fetched;
    } catch (error) {
      // When everything was ended, why it was is what counts.
      requireNotAborted(signal);
      throw this.#cause ?? error;
    } finally {
      signal?.removeEventListener("abort", abort);
      // What fails here fails for a reason that was told already, or costs the last half megabyte.
      if (this.#unsaved > 0) await this.#save().catch(() => {});
    }
  }

  /**
   * What a probe has brought need not be fetched again.
   * @param {Published} published
   */
  async #seed({ size, etag, lastModified, ranges, sha256, head }) {
    await this.#compare({ etag, lastModified, encoded: !ranges && size === null, sha256, total: size });
    this.#ranged = ranges;
    if (!ranges || this.#partial.ranges.total > 0) return;
    this.#sniffed = true;
    await this.#take(head, 0);
  }

  async #fetchWhatIsMissing() {
    const partial = this.#partial;
    // One connection until it is known what the file is and where its bytes go.
    while (!(this.#known && partial.isPlanned && partial.ranges.total > 0)) await this.#try(this.#headGap());
    partial.readHeader();
    const { connections = CONNECTIONS } = this.#options;
    await this.#all(Array.from({ length: connections }, () => this.#work()));
  }

  /** @returns {[number, number]} */
  #headGap() {
    const start = this.#partial.ranges.frontier;
    return [start, Math.max(this.#partial.headerBytesWanted, start + 1)];
  }

  async #work() {
    while (!this.#partial.isComplete && !this.#wholeBody) {
      const gap = this.#claim();
      if (!gap) return;
      this.#claimed.push(gap);
      try {
        await this.#try(gap);
      } finally {
        this.#claimed.splice(this.#claimed.indexOf(gap), 1);
      }
    }
  }

  /** @returns {[number, number] | null} the next bytes that nobody fetches yet */
  #claim() {
    const { size, ranges } = this.#partial;
    if (size === null || !this.#ranged) {
      return this.#claimed.length > 0 ? null : [ranges.frontier, size ?? Infinity];
    }
    const [gap] = new Ranges([...ranges.toList(), ...this.#claimed]).gaps(0, size);
    if (!gap) return null;
    // Towards the end requests become small, so that all connections are done at about the same time.
    const { gapBytes = GAP_BYTES, connections = CONNECTIONS } = this.#options;
    const fair = Math.ceil((size - ranges.total) / (2 * connections));
    return [gap[0], Math.min(gap[1], gap[0] + Math.min(gapBytes, Math.max(fair, gapBytes / 16)))];
  }

  /**
   * One request for these bytes; what has not come then is asked for again.
   * @param {[number, number]} gap
   */
  async #try([start, end]) {
    const arrived = this.#arrived;
    try {
      await this.#request(start, end === Infinity ? null : end);
      if (this.#arrived > arrived || this.#partial.isComplete || this.#wholeBody) return;
      throw new Transient("its server sends nothing");
    } catch (error) {
      // What has arrived before the connection broke is progress.
      if (error instanceof Transient && this.#arrived > arrived && error.retryAfterMs === null) return;
      const now = this.#arrived;
      await this.#retries.after(error, () => this.#arrived > now);
    }
  }

  /**
   * @param {number} start
   * @param {number | null} end
   */
  async #request(start, end) {
    const partial = this.#partial;
    const { stallMs, fetch } = this.#options;
    const signal = this.#ending.signal;
    const range = this.#ranged ? /** @type {[number, number | null]} */ ([start, end]) : null;
    const options = { range, validator: this.#validator(), signal, stallMs, fetch };
    const answer = await request(this.#file, options).catch((error) => {
      // What comes compressed whatever is asked for, browsers drop when a range was asked for (case D3).
      if (partial.size === null) this.#ranged = false;
      throw error;
    });
    try {
      if (answer.status === 416) {
        if (this.#known && partial.size === null && answer.total === start) return await this.#end(start);
        // Whether the file has changed or the server cannot count: the whole file tells (case D5).
        this.#ranged = false;
        throw new Transient("its server refuses the range", { status: 416 });
      }
      requireFile(this.#file, answer);
      if (answer.status === 206 && (answer.encoded || answer.start !== start)) {
        this.#ranged = false;
        throw new Transient("its server sends another range", { status: 206 });
      }
      if (answer.status === 206 && answer.total === null && partial.size === null) {
        answer.total = await this.#askForSize();
      }
      await this.#compare(answer);
      if (answer.status === 206) return await this.#copy(answer, start, end);
      // No ranges: this body is the file. What is here of it already is skipped.
      if (this.#wholeBody) return;
      this.#wholeBody = true;
      try {
        await this.#copy(answer, 0, null);
      } finally {
        this.#wholeBody = false;
      }
    } finally {
      answer.close();
    }
  }

  /** Case D4: the size of a file whose server hides it from other origins. */
  async #askForSize() {
    const { stallMs, fetch } = this.#options;
    const size = await sizeBy("HEAD", this.#file, { signal: this.#ending.signal, stallMs, fetch });
    if (size !== null) return size;
    // Only a plain request is left, whose length may be told.
    this.#ranged = false;
    throw new Transient("its server does not tell its size");
  }

  /**
   * Takes what a response tells of the file.
   * @param {Pick<Answer, "etag" | "lastModified" | "encoded" | "sha256" | "total">} answer
   * @throws {Changed} when it was told otherwise before
   */
  async #compare({ etag, lastModified, encoded, sha256, total }) {
    const { journal } = this.#partial;
    this.#takeHash(sha256);
    if (!this.#known) {
      this.#known = true;
      Object.assign(journal, { etag, lastModified });
      this.#ranged &&= !encoded;
      return this.#partial.setSize(total);
    }
    if (encoded) {
      this.#ranged = false;
      return;
    }
    if (journal.size !== null && total !== null && journal.size !== total) throw new Changed();
    if (journal.etag !== null && etag !== null) {
      if (journal.etag !== etag) throw new Changed();
    } else if (journal.lastModified !== null && lastModified !== null && journal.lastModified !== lastModified) {
      throw new Changed();
    }
    if (journal.size === null && total !== null && total >= this.#partial.ranges.total) {
      await this.#partial.setSize(total);
    }
  }

  /** @param {string | null} sha256 */
  #takeHash(sha256) {
    if (sha256 === null || sha256 === this.#expected) return;
    if (this.#file.sha256 !== null) {
      throw this.#mismatch(this.#file.sha256, sha256, "its server offers other bytes than those wanted");
    }
    if (this.#expected !== null) throw new Changed();
    this.#expected = sha256;
  }

  /**
   * @param {Answer} answer
   * @param {number} at where its first byte belongs
   * @param {number | null} end
   */
  async #copy(answer, at, end) {
    /** @type {Uint8Array} */
    let head = new Uint8Array();
    for await (let chunk of answer.chunks()) {
      requireNotAborted(this.#ending.signal);
      if (!this.#sniffed) {
        head = joined(head, chunk);
        if (head.length < SNIFF_BYTES && head.length !== this.#partial.size) continue;
        chunk = this.#sniff(head);
      }
      if (end !== null) chunk = chunk.subarray(0, end - at);
      at = await this.#take(chunk, at);
      if (end !== null && at >= end) return;
    }
    if (!this.#sniffed) at = await this.#take(this.#sniff(head), at);
    if (end === null && this.#partial.size === null) await this.#end(at);
  }

  /** @param {Uint8Array} head */
  #sniff(head) {
    requireGguf(head, this.#file.name);
    this.#sniffed = true;
    return head;
  }

  /**
   * Writes what of a chunk is missing.
   * @param {Uint8Array} chunk
   * @param {number} at
   * @returns {Promise<number>} the place behind it
   */
  async #take(chunk, at) {
    const partial = this.#partial;
    const behind = at + chunk.length;
    // A length that was announced of a compressed body proves too small (case D3).
    if (partial.size !== null && behind > partial.size && this.#wholeBody) await partial.setSize(null);
    for (const [start, end] of partial.ranges.gaps(at, Math.min(behind, partial.size ?? Infinity))) {
      const added = partial.write(chunk.subarray(start - at, end - at), start);
      this.#arrived += added;
      this.#unsaved += added;
      this.#retries.progress();
    }
    await partial.plan();
    partial.readHeader();
    this.#pump.wake();
    const { journalBytes = Math.max(JOURNAL_BYTES, (partial.size ?? 0) / JOURNAL_PARTS) } = this.#options;
    if (this.#unsaved >= journalBytes) this.#saveSoon();
    this.#tell();
    return behind;
  }

  /**
   * A file whose size was unknown has ended, unless its header says that more belongs to it.
   * @param {number} size
   */
  async #end(size) {
    const partial = this.#partial;
    if (size < partial.ranges.total) throw new Changed();
    partial.journal.size = size;
    try {
      partial.readHeader();
    } catch (error) {
      if (!(error instanceof HeadraceError) || error.code !== "model_truncated") throw error;
      partial.journal.size = null;
      throw new Transient("the connection ends before the file does");
    }
    this.#pump.wake();
  }

  /** Beside what arrives meanwhile, and never twice at once. */
  #saveSoon() {
    this.#saving ??= this.#save()
      .catch((error) => this.#stop(error))
      .finally(() => (this.#saving = null));
  }

  async #save() {
    this.#unsaved = 0;
    await this.#partial.save();
  }

  #tell() {
    this.#options.onBytes?.(this.#partial.ranges.total, this.#partial.size);
  }

  /** @returns {string | null} */
  #validator() {
    const { etag, lastModified } = this.#partial.journal;
    // A weak ETag may not be asked for; whether it is the same one is compared in any case.
    if (etag === null) return lastModified;
    return etag.startsWith("W/") ? null : etag;
  }

  /** @param {string} sha256 */
  #requireHash(sha256) {
    if (this.#expected === null || this.#expected === sha256) return;
    throw this.#mismatch(this.#expected, sha256, "its bytes are not those whose hash was given");
  }

  /**
   * @param {string} expected
   * @param {string} actual
   * @param {string} reason
   */
  #mismatch(expected, actual, reason) {
    const { display } = this.#file;
    return new HeadraceError("hash_mismatch", `${display} was not kept: ${reason}`, {
      detail: { url: display, expected, actual },
    });
  }

  /** @param {unknown} error */
  #stop(error) {
    if (!this.#ending.signal.aborted) this.#cause = error;
    this.#ending.abort(error);
  }

  /**
   * Waits for all; when one fails, the others are ended and its error is thrown.
   * @param {Promise<void>[]} parts
   */
  async #all(parts) {
    try {
      await Promise.all(parts);
    } catch (error) {
      this.#stop(error);
      await Promise.allSettled(parts);
      throw error;
    }
  }
}

/**
 * @param {Uint8Array} one
 * @param {Uint8Array} other
 */
function joined(one, other) {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}
