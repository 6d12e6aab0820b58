// The bytes of one published file while they arrive: in one stored file, or in shards that are cut at once.
//
// Counterparts: download.js decides what to fetch, split.js where to cut; headrace/models/partial.py is the
// Python twin. Writing and hashing are synchronous; opening files and the journal are not.

import { HeadraceError } from "../errors.js";
import { parseHeader } from "./gguf_header.js";
import { newJournal, readJournal } from "./journal.js";
import { journalName, partialName } from "./names.js";
import { Ranges } from "./ranges.js";
import { createSha256 } from "./sha256.js";
import { MAX_WHOLE_BYTES, planPieces, requireSeparate } from "./split.js";

/** @import { Sha256 } from "./sha256.js" */
/** @import { FetchedFile, GgufHeader, Piece, RemoteFile, Storage, WritableFile } from "./types.js" */

/**
 * Files larger than `maxWholeBytes` (default 2 GiB) are cut into shards of `shardBytes` (512 MiB). `headBytes`
 * are asked for first, to read the header (1 MiB); twice as many then.
 * @typedef {{maxWholeBytes?: number, shardBytes?: number, headBytes?: number}} SplitSizes
 */

const FIRST_HEADER_BYTES = 2 ** 20;
const SLICE_BYTES = 2 ** 20;
const MAGIC_BYTES = 8;

export class Partial {
  #storage;
  #file;
  #sizes;
  /** @type {Piece[]} */ #pieces = [];
  /** @type {WritableFile[]} one for each piece */ #pieceFiles = [];
  /** @type {WritableFile | null} */ #head = null;
  /** @type {Sha256[]} of each piece that has a header of its own */ #pieceHashes = [];
  #headerWanted;
  /** @type {number | null} the size that the header was held against */ #checkedSize = null;
  #slice = new Uint8Array(SLICE_BYTES);
  #resuming = false;
  /** @type {Promise<void>} */ #saving = Promise.resolve();

  /** @type {GgufHeader | null} once enough has come */ header = null;
  /** Bytes from the beginning that are in the hash. */ hashed = 0;

  /**
   * Goes on with what an earlier session has left, if it can be believed.
   * @param {Storage} storage
   * @param {Pick<RemoteFile, "key" | "display" | "name">} file
   * @param {SplitSizes} sizes
   */
  static async open(storage, file, sizes) {
    const left = await readJournal(storage, file.key);
    const partial = new Partial(storage, file, sizes, left ?? newJournal(file), await createSha256());
    try {
      if (left && (await partial.#resume())) return partial;
      await partial.discard();
    } catch (error) {
      partial.close();
      throw error;
    }
    return new Partial(storage, file, sizes, newJournal(file), await createSha256());
  }

  /**
   * @param {Storage} storage
   * @param {Pick<RemoteFile, "key" | "display" | "name">} file
   * @param {SplitSizes} sizes
   * @param {import("./types.js").Journal} journal
   * @param {Sha256} hash
   */
  constructor(storage, file, sizes, journal, hash) {
    this.#storage = storage;
    this.#file = file;
    this.#sizes = sizes;
    this.#headerWanted = sizes.headBytes ?? FIRST_HEADER_BYTES;
    this.journal = journal;
    this.ranges = new Ranges(journal.ranges);
    this.hash = hash;
  }

  get size() {
    return this.journal.size;
  }

  get isComplete() {
    return this.size !== null && this.ranges.total === this.size;
  }

  /** Whether it is decided where bytes go; before, only what follows the frontier may be written. */
  get isPlanned() {
    return this.#pieces.length > 0;
  }

  /** How many bytes from the beginning on are needed next to read the header. */
  get headerBytesWanted() {
    return Math.min(this.#headerWanted, this.size ?? Infinity);
  }

  /**
   * Once the size is known, or surely will not be before the end.
   * @param {number | null} size
   */
  async setSize(size) {
    this.journal.size = size;
    await this.plan();
  }

  /**
   * Decides where bytes go, as soon as what has come tells.
   * @throws {HeadraceError} model_invalid, model_truncated, and what storage raises
   */
  async plan() {
    if (this.isPlanned) return;
    const { maxWholeBytes = MAX_WHOLE_BYTES, shardBytes } = this.#sizes;
    if (this.size === null || this.size <= maxWholeBytes) {
      await this.#begin([{ header: null, start: 0, end: this.size }]);
      return;
    }
    this.#head ??= await this.#storage.openWrite(partialName(this.#file.key, "head"));
    if (this.header === null) this.readHeader();
    if (this.header === null) return;
    const head = this.#bytes(0, this.header.dataStart);
    const limits = { maxWholeBytes, shardBytes, name: this.#file.name };
    await this.#begin(planPieces(this.header, head, this.size, limits));
    // What came with the header is data already; what came later is in its piece, where an earlier session put it.
    const end = Math.min(this.ranges.frontier, this.#head.size);
    for (let at = this.#pieces[0].start; at < end; ) {
      const read = this.#head.read(this.#slice.subarray(0, Math.min(SLICE_BYTES, end - at)), at);
      this.#put(this.#slice.subarray(0, read), at);
      at += read;
    }
  }

  /**
   * As soon as enough of the beginning is there: refuses what cannot be a whole model before the rest is
   * fetched.
   * @throws {HeadraceError} model_invalid, model_truncated
   */
  readHeader() {
    if (this.header !== null && this.#checkedSize === this.size) return;
    while (this.header === null && this.ranges.frontier >= this.headerBytesWanted) {
      const wanted = this.headerBytesWanted;
      if (wanted === 0 || wanted === Infinity) return;
      this.header = parseHeader(this.#bytes(0, wanted), this.#file.name, this.size);
      if (this.header === null) {
        if (wanted === this.size) throw this.#truncated(wanted);
        this.#headerWanted = 2 * wanted;
      }
    }
    if (this.header === null || this.size === null) return;
    if (this.header.dataEnd > this.size) throw this.#truncated(this.header.dataEnd);
    requireSeparate(this.header, this.size, this.#file.name);
    this.#checkedSize = this.size;
  }

  /**
   * @param {Uint8Array} bytes
   * @param {number} at of the published file
   * @returns {number} how many of them are new
   */
  write(bytes, at) {
    if (this.isPlanned) this.#put(bytes, at);
    else this.#open(this.#head).write(bytes, at);
    return this.ranges.add(at, at + bytes.length);
  }

  /**
   * Published bytes that have come; may be fewer than `target.length`, up to where another file goes on.
   * @param {Uint8Array} target
   * @param {number} at
   */
  read(target, at) {
    const { file, start, end, begins } = this.#place(at);
    return file.read(target.subarray(0, Math.min(target.length, end - at)), begins + at - start);
  }

  /** Resolves when no journal is being written. */
  async saved() {
    await this.#saving.catch(() => {});
  }

  /** Makes what has come survive a crash: the bytes first, then the journal that names them. */
  save() {
    // One after another, or an older journal could be the last to be written.
    this.#saving = this.#saving.then(async () => {
      const ranges = this.ranges.toList();
      for (const file of this.#files()) file.flush();
      this.journal.ranges = ranges;
      await this.#storage.writeText(journalName(this.#file.key), JSON.stringify(this.journal));
    });
    return this.#saving;
  }

  /**
   * Takes the next megabyte, as far as it has come, into the hashes.
   * @returns {boolean} whether there was something
   */
  hashSlice() {
    const { frontier } = this.ranges;
    if (!this.isPlanned || this.hashed >= frontier) return false;
    const count = Math.min(SLICE_BYTES, frontier - this.hashed);
    const read = this.read(this.#slice.subarray(0, count), this.hashed);
    if (read === 0) throw new HeadraceError("storage_failed", `bytes of ${this.#file.name} have gone`);
    const bytes = this.#slice.subarray(0, read);
    this.hash.update(bytes);
    const index = this.#pieces.findIndex((piece) => holds(piece, this.hashed));
    if (index >= 0) this.#pieceHashes[index]?.update(bytes);
    this.hashed += read;
    return true;
  }

  /**
   * When all has come and is hashed.
   * @returns {Promise<FetchedFile>}
   * @throws {HeadraceError} model_invalid, model_truncated
   */
  async finish() {
    const size = /** @type {number} */ (this.size);
    this.readHeader();
    // A file shorter than the first try.
    this.header ??= parseHeader(this.#bytes(0, size), this.#file.name, size);
    if (this.header === null) throw this.#truncated(size);
    const behind = Math.min(this.header.dataEnd, size);
    const following = Math.min(this.header.alignment + MAGIC_BYTES, size - behind);
    requireSeparate(this.header, size, this.#file.name, this.#bytes(behind, behind + following));

    const part = { sha256: this.hash.digest(), size };
    const files = this.#pieces.map((piece, index) => {
      const length = (piece.header?.length ?? 0) + (piece.end ?? size) - piece.start;
      this.#pieceFiles[index].truncate(length);
      const sha256 = this.#pieceHashes[index]?.digest() ?? part.sha256;
      return { name: partialName(this.#file.key, index + 1), sha256, size: length };
    });
    await this.save();
    return { part, files, etag: this.journal.etag, header: this.header };
  }

  /** Removes all of it. */
  async discard() {
    await this.saved();
    this.close();
    await discardPartial(this.#storage, this.#file.key);
  }

  /** Lets go of the files; may be called again. */
  close() {
    for (const file of this.#files()) file.close();
  }

  /** Waits until nothing is written any more, and closes. */
  async settle() {
    await this.saved();
    this.close();
  }

  /** @returns {Promise<boolean>} whether all that the journal names is there */
  async #resume() {
    if (this.ranges.total === 0) return false;
    this.#resuming = true;
    try {
      await this.plan();
    } catch (error) {
      if (error instanceof HeadraceError && error.code.startsWith("model_")) return false;
      throw error;
    } finally {
      this.#resuming = false;
    }
    if (!this.isPlanned && this.ranges.toList().length > 1) return false;
    return this.ranges.toList().every(([start, end]) => this.#isThere(start, end));
  }

  /**
   * @param {number} start
   * @param {number} end
   */
  #isThere(start, end) {
    for (let at = start; at < end; ) {
      const { file, start: first, end: last, begins } = this.#place(at);
      const stop = Math.min(end, last);
      if (file.size < begins + stop - first) return false;
      at = stop;
    }
    return true;
  }

  /** @param {Piece[]} pieces */
  async #begin(pieces) {
    for (const [index, { header }] of pieces.entries()) {
      const file = await this.#storage.openWrite(partialName(this.#file.key, index + 1));
      this.#pieceFiles.push(file);
      // What is left of an earlier session is looked at as it is: room that is reserved now would hide a loss.
      if (!this.#resuming) this.#reserve(file, pieces[index]);
      if (!header) continue;
      file.write(header, 0);
      const hash = await createSha256();
      hash.update(header);
      this.#pieceHashes[index] = hash;
    }
    this.#pieces = pieces;
  }

  /**
   * A browser that has no room for the file says so now, and not after gigabytes (case D6): what it tells of
   * its quota may be anything.
   * @param {WritableFile} file
   * @param {Piece} piece
   */
  #reserve(file, { header, start, end }) {
    // What is said of memory is true, and holes would be filled.
    if (end === null || this.#storage.kind !== "opfs") return;
    const length = (header?.length ?? 0) + end - start;
    if (file.size < length) file.truncate(length);
  }

  /**
   * @param {number} from
   * @param {number} until
   */
  #bytes(from, until) {
    const bytes = new Uint8Array(until - from);
    for (let at = 0; at < bytes.length; ) {
      const read = this.isPlanned
        ? this.read(bytes.subarray(at), from + at)
        : this.#open(this.#head).read(bytes.subarray(at), from + at);
      if (read === 0) throw new HeadraceError("storage_failed", `bytes of ${this.#file.name} have gone`);
      at += read;
    }
    return bytes;
  }

  /**
   * @param {Uint8Array} bytes
   * @param {number} at
   */
  #put(bytes, at) {
    for (let done = 0; done < bytes.length; ) {
      const { file, start, end, begins } = this.#place(at + done);
      if (end <= at + done) throw new HeadraceError("internal", `${this.#file.name}: no byte ${at + done} is expected`);
      const part = bytes.subarray(done, Math.min(bytes.length, end - at));
      file.write(part, begins + at + done - start);
      done += part.length;
    }
  }

  /**
   * Which file holds a published byte, which published bytes it holds, and where the first of them lies there.
   * @param {number} at
   */
  #place(at) {
    const index = this.#pieces.findIndex((piece) => holds(piece, at));
    if (index >= 0) {
      const { header, start, end } = this.#pieces[index];
      return { file: this.#pieceFiles[index], start, end: end ?? Infinity, begins: header?.length ?? 0 };
    }
    return { file: this.#open(this.#head), start: 0, end: this.#pieces[0]?.start ?? Infinity, begins: 0 };
  }

  /** @param {WritableFile | null} file */
  #open(file) {
    if (file) return file;
    throw new HeadraceError("internal", `${this.#file.name}: there is no file for these bytes`);
  }

  #files() {
    return this.#head ? [this.#head, ...this.#pieceFiles] : this.#pieceFiles;
  }

  /** @param {number} expected */
  #truncated(expected) {
    const { name } = this.#file;
    const message = `${name} is cut short: its tensors need ${expected} bytes, it has ${this.size}`;
    const detail = { name, expectedBytes: expected, actualBytes: this.size };
    return new HeadraceError("model_truncated", message, { detail });
  }
}

/**
 * Removes all that has come of a published file.
 * @param {Storage} storage
 * @param {string} key
 */
export async function discardPartial(storage, key) {
  for (const { name } of await storage.list()) {
    if (name.startsWith(`partial-${key}-`) && name.endsWith(".gguf")) await storage.remove(name);
  }
  await storage.remove(journalName(key));
}

/**
 * @param {Piece} piece
 * @param {number} at
 */
function holds({ start, end }, at) {
  return start <= at && at < (end ?? Infinity);
}
