// What web/models/ makes of the cases that come as JSON on standard input, as JSON on standard output.
//
// Counterpart: tests/python/models_twins.py, which makes the same of them in Python.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import { TENSOR_TYPES } from "../../web/models/gguf_types.js";
import { parseHeader } from "../../web/models/gguf_header.js";
import { requireGguf } from "../../web/models/gguf.js";
import { resolveRemote } from "../../web/models/sources.js";
import { planPieces, shardOf } from "../../web/models/split.js";

const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");

function plain(value) {
  if (typeof value === "boolean" || typeof value === "string") return value;
  if (typeof value === "object") return [value.type, value.length];
  if (typeof value === "bigint") return { number: String(value) };
  if (Number.isInteger(value)) return { number: String(BigInt(value)) };
  if (!Number.isFinite(value)) return { number: Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf" };
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(value);
  return { number: bytes.toString("hex") };
}

function plainHeader(header) {
  return {
    ...header,
    metadata: [...header.metadata].map(([key, value]) => [key, plain(value)]),
    tensors: header.tensors.map(({ name, shape, type, offset, bytes }) => [name, shape, type, offset, bytes]),
  };
}

async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (error.code === undefined || error.toWire === undefined) throw error;
    return { error: error.toWire() };
  }
}

function inspect({ path, hex, take, size, maxWholeBytes, shardBytes }) {
  const all = new Uint8Array(path === undefined ? Buffer.from(hex, "hex") : readFileSync(path));
  const bytes = take === undefined ? all : all.subarray(0, take);
  const header = parseHeader(bytes, "case", size ?? null);
  if (header === null) return null;
  const pieces = planPieces(header, bytes, size ?? all.length, { maxWholeBytes, shardBytes, name: "case" });
  return {
    header: plainHeader(header),
    shard: Object.values(shardOf(header) ?? {}),
    pieces: pieces.map((piece) => [piece.header && digest(piece.header), piece.start, piece.end]),
  };
}

const { files = [], heads = [], sources = [] } = JSON.parse(readFileSync(0, "utf8"));
const results = { files: [], heads: [], sources: [], types: [...TENSOR_TYPES] };
for (const file of files) results.files.push(await attempt(() => inspect(file)));
for (const head of heads) {
  results.heads.push(await attempt(() => requireGguf(Buffer.from(head, "hex"), "case") ?? null));
}
for (const { source, ...options } of sources) {
  results.sources.push(await attempt(() => resolveRemote(source, options)));
}
process.stdout.write(JSON.stringify(results));
