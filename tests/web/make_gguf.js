// Small GGUF files for tests of the model store: valid headers, tensors of any size, nothing an engine could
// run.
//
// Counterpart: tests/gguf_builder.py makes models that run.

const UINT16 = 2;
const INT32 = 5;
const STRING = 8;
const ALIGNMENT = 32;

/**
 * @param {object} [about]
 * @param {string} [about.name] general.name
 * @param {number[]} [about.tensors] bytes of each tensor, multiples of four
 * @param {number} [about.seed] of their content
 * @param {{index: number, count: number, tensors: number, first?: number}} [about.shard] `index` from 1;
 *   `first` is the number of its first tensor
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function makeGguf({ name = "Tiny", tensors = [4096], seed = 1, shard } = {}) {
  const entries = [text("general.architecture", "llama"), text("general.license", "mit")];
  if (!shard || shard.index === 1) entries.push(text("general.name", name));
  if (shard) {
    entries.push(number("split.no", UINT16, shard.index - 1), number("split.count", UINT16, shard.count));
    entries.push(number("split.tensors.count", INT32, shard.tensors));
  }
  let offset = 0;
  const infos = tensors.map((bytes, index) => {
    const info = join(
      string(`blk.${index + (shard?.first ?? 0)}.weight`),
      u32(1),
      u64(bytes / 4),
      u32(0),
      u64(offset),
    );
    offset += padded(bytes);
    return info;
  });
  const head = join(
    new TextEncoder().encode("GGUF"),
    u32(3),
    u64(tensors.length),
    u64(entries.length),
    ...entries,
    ...infos,
  );
  const data = new Uint8Array(offset);
  let state = seed;
  for (let at = 0; at < data.length; at++) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    data[at] = state >>> 24;
  }
  const start = new Uint8Array(padded(head.length));
  start.set(head);
  return join(start, data);
}

/**
 * The shards of one model, in their order.
 * @param {number} count
 * @param {{bytes?: number, seed?: number}} [about]
 */
export function makeShards(count, { bytes = 4096, seed = 1 } = {}) {
  return Array.from({ length: count }, (_, place) =>
    makeGguf({
      tensors: [bytes],
      seed: seed + place,
      shard: { index: place + 1, count, tensors: count, first: place },
    }),
  );
}

/** @param {number} size */
const padded = (size) => Math.ceil(size / ALIGNMENT) * ALIGNMENT;

/** @param {...Uint8Array} parts */
function join(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param {number} value */
const u32 = (value) => new Uint8Array(new Uint32Array([value]).buffer);
/** @param {number} value */
const u64 = (value) => new Uint8Array(new BigUint64Array([BigInt(value)]).buffer);
/** @param {string} value */
function string(value) {
  const bytes = new TextEncoder().encode(value);
  return join(u64(bytes.length), bytes);
}
/** @param {string} key @param {string} value */
const text = (key, value) => join(string(key), u32(STRING), string(value));
/** @param {string} key @param {number} type @param {number} value */
const number = (key, type, value) =>
  join(string(key), u32(type), type === UINT16 ? new Uint8Array([value & 255, value >> 8]) : u32(value));
