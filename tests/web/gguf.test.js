// What is not a GGUF model is recognised from its first bytes, and the sentence says what it is.

import assert from "node:assert/strict";
import { test } from "node:test";

import { SNIFF_BYTES, requireGguf } from "../../web/models/gguf.js";

const encode = (text) => new TextEncoder().encode(text);

/** A header of 24 bytes, padded. @param {number} version @param {boolean} littleEndian */
function header(version, littleEndian = true, length = 64) {
  const bytes = new Uint8Array(length);
  bytes.set(encode("GGUF"));
  new DataView(bytes.buffer).setUint32(4, version, littleEndian);
  return bytes;
}

const IMPOSTORS = [
  ["empty", new Uint8Array(), /is empty/],
  ["html", encode("<!DOCTYPE html><html><title>404</title>"), /HTML page/],
  ["html", encode("\n  <html lang=en>"), /HTML page/],
  ["html", encode("\ufeff<!doctype html>"), /HTML page/],
  ["xml", encode('<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'), /XML/],
  [
    "lfs",
    encode("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n"),
    /Git-LFS pointer/,
  ],
  ["json", encode('{"error": "Repository not found"}'), /JSON/],
  ["gzip", Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0), /gzip/],
  ["zip", Uint8Array.of(0x50, 0x4b, 3, 4, 20, 0), /zip/],
  ["safetensors", Uint8Array.of(16, 1, 0, 0, 0, 0, 0, 0, ...encode('{"__metadata__"')), /safetensors/],
  ["unknown", encode("Dear diary, this is a text that somebody renamed."), /does not begin with "GGUF"/],
  ["unknown", encode("GGU"), /does not begin with "GGUF"/],
  ["short", header(3, true, 23), /ends after 23 bytes/],
  ["big-endian", header(3, false), /big-endian/],
];

for (const [kind, bytes, sentence] of IMPOSTORS) {
  test(`refused: ${kind}, ${bytes.length} bytes`, () => {
    assert.throws(
      () => requireGguf(bytes, "model.gguf"),
      (error) => {
        assert.equal(error.code, "model_invalid");
        assert.deepEqual(error.detail, { name: "model.gguf", kind });
        assert.match(error.message, sentence);
        assert.match(error.message, /^model\.gguf is .*[^.]$/, "one sentence that names the file");
        return true;
      },
    );
  });
}

test("a GGUF header passes, in a view with an offset too", () => {
  requireGguf(header(3), "model.gguf");
  requireGguf(header(3, true, 24), "model.gguf");
  requireGguf(header(2, true, SNIFF_BYTES), "model.gguf");
  const shifted = new Uint8Array(100);
  shifted.set(header(3), 7);
  requireGguf(shifted.subarray(7), "model.gguf");
});
