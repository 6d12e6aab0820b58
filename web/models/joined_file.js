// A published file as it was before it was split into shards here: read through them, never written.
//
// Counterpart: split.js, which cut it. The published header is not among the shards; whoever reads has it
// from the server.

import { fileHeader } from "./file_header.js";

/** @import { GgufHeader, ReadableFile, Storage } from "./types.js" */

/**
 * A shard, and which published bytes its data are.
 * @typedef {{file: ReadableFile, dataStart: number, from: number}} Shard
 */

/**
 * @param {Storage} storage
 * @param {string[]} names of the shards in order
 * @param {Uint8Array} head the published file's first bytes, its whole header among them
 * @param {GgufHeader} header the published one
 * @returns {Promise<ReadableFile | null>} null when a shard cannot be read
 */
export async function openJoined(storage, names, head, { dataStart }) {
  /** @type {Shard[]} */
  const shards = [];
  let size = dataStart;
  const close = () => {
    for (const { file } of shards) file.close();
  };
  for (const name of names) {
    const file = await storage.openRead(name).catch(() => null);
    const own = file && fileHeader(file, "a shard");
    if (!file || !own) {
      file?.close();
      close();
      return null;
    }
    shards.push({ file, dataStart: own.dataStart, from: size });
    size += file.size - own.dataStart;
  }
  return {
    size,
    read: (target, at) => readJoined(shards, head.subarray(0, dataStart), size, target, at),
    close,
  };
}

/**
 * @param {Shard[]} shards
 * @param {Uint8Array} head
 * @param {number} size
 * @param {Uint8Array} target
 * @param {number} at
 * @returns {number}
 */
function readJoined(shards, head, size, target, at) {
  const end = Math.min(at + target.length, size);
  let place = at;
  if (place < head.length) {
    const bytes = head.subarray(place, end);
    target.set(bytes);
    place += bytes.length;
  }
  for (const { file, dataStart, from } of shards) {
    const to = from + file.size - dataStart;
    if (place >= end || place < from || place >= to) continue;
    const part = target.subarray(place - at, Math.min(end, to) - at);
    place += file.read(part, place - from + dataStart);
  }
  return Math.max(0, place - at);
}
