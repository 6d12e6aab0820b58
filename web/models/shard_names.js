// The names of a model's shards, as gguf-split gives them: model-00002-of-00003.gguf.
//
// Counterpart: headrace/models/shard_names.py. What a file really is, its header says: split.js.

const PATTERN = /^(.*-)([0-9]{5})(-of-)([0-9]{5})(\.gguf)$/is;

/**
 * @param {string} name of one shard, in upper or lower case
 * @returns {{index: number, count: number, names: string[]} | null} which it is, from 1, and the names of
 *   all; null when the name is not that of a shard
 */
export function shardNames(name) {
  const match = PATTERN.exec(name);
  if (match === null) return null;
  const [, prefix, number, of, total, ending] = match;
  const index = Number(number);
  const count = Number(total);
  if (index < 1 || index > count) return null;
  const names = Array.from(
    { length: count },
    (_, i) => `${prefix}${String(i + 1).padStart(5, "0")}${of}${total}${ending}`,
  );
  return { index, count, names };
}
