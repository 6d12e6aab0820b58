// SHA-256 in pieces, as fast as the disk: the browser's own digest wants all bytes at once.
//
// Counterpart: hashlib in headrace/models/. Runs in workers and in Node; needs what the engine needs,
// WebAssembly.

import "../vendor/sha256.umd.min.js";

/** One digest in the making; `digest` ends it. @typedef {{update(bytes: Uint8Array): void, digest(): string}} Sha256 */

/** @returns {Promise<Sha256>} digests are 64 lower-case hexadecimal digits */
export async function createSha256() {
  const hasher = await globalThis.hashwasm.createSHA256();
  hasher.init();
  return {
    update: (bytes) => hasher.update(bytes),
    digest: () => hasher.digest("hex"),
  };
}

/**
 * @param {string | Uint8Array} data a text counts as its UTF-8 bytes
 * @returns {Promise<string>} 64 lower-case hexadecimal digits
 */
export async function sha256Hex(data) {
  const sha256 = await createSha256();
  sha256.update(typeof data === "string" ? new TextEncoder().encode(data) : data);
  return sha256.digest();
}
