// A tiny GGUF file for tests of web/: float tensors of given lengths. Not a model: it has no vocabulary.

/** @param {number[]} lengths elements of t0, t1, … */
export function smallGguf(lengths) {
  const parts = [];
  const text = (value) => [number(BigInt(value.length)), new TextEncoder().encode(value)];
  const number = (value) => new Uint8Array(BigUint64Array.of(value).buffer);
  const u32 = (value) => new Uint8Array(Uint32Array.of(value).buffer);
  parts.push(new TextEncoder().encode("GGUF"), u32(3), number(BigInt(lengths.length)), number(2n));
  parts.push(...text("general.architecture"), u32(8), ...text("llama"));
  parts.push(...text("tokens"), u32(9), u32(8), number(2n), ...text("a"), ...text("bc"));
  let offset = 0;
  for (const [index, length] of lengths.entries()) {
    parts.push(...text(`t${index}`), u32(1), number(BigInt(length)), u32(0), number(BigInt(offset)));
    offset += Math.ceil((4 * length) / 32) * 32;
  }
  const headerBytes = parts.reduce((sum, part) => sum + part.length, 0);
  const dataStart = Math.ceil(headerBytes / 32) * 32;
  const bytes = new Uint8Array(dataStart + offset);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  for (let i = dataStart; i < bytes.length; i++) bytes[i] = i % 251;
  return bytes;
}
