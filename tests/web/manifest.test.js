// Manifests: what is written, and that nothing that is not one is believed.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseHeader } from "../../web/models/gguf_header.js";
import { makeManifest, mergeManifests, modelId, readManifest } from "../../web/models/manifest.js";
import { baseName } from "../../web/models/names.js";
import { sha256Hex } from "../../web/models/sha256.js";
import { makeGguf } from "./make_gguf.js";

const [A, B, KEY] = ["a", "b", "c"].map((digit) => digit.repeat(64));

/** @param {string} sha256 @param {number} size */
function fetched(sha256, size) {
  const header = /** @type {any} */ (parseHeader(makeGguf(), "x"));
  return { part: { sha256, size }, files: [{ name: "partial-x", sha256, size }], etag: null, header };
}

const SOURCE = { key: KEY, display: "https://models.test/a.gguf", etag: '"1"' };

test("a manifest tells what the header tells, and reads back as it was written", async () => {
  const manifest = await makeManifest([fetched(A, 10)], { name: "a.gguf", sources: [SOURCE] });
  assert.deepEqual(
    { ...manifest, addedAt: "", usedAt: "" },
    {
      version: 1,
      id: `sha256-${A}`,
      name: "a.gguf",
      size: 10,
      sources: [SOURCE],
      parts: [{ sha256: A, size: 10 }],
      files: [{ sha256: A, size: 10 }],
      projector: null,
      license: "mit",
      architecture: "llama",
      addedAt: "",
      usedAt: "",
      pinned: false,
    },
  );
  assert.deepEqual(await readManifest(JSON.stringify(manifest), manifest.id), manifest);
});

test("the id of a set is that of its digests, in order", async () => {
  assert.equal(await modelId([A]), `sha256-${A}`);
  assert.equal(await modelId([A, B]), `sha256-${await sha256Hex(`${A}\n${B}`)}`);
  assert.notEqual(await modelId([A, B]), await modelId([B, A]));
  const set = await makeManifest([fetched(A, 10), fetched(B, 5)], { name: "set", sources: [] });
  assert.deepEqual([set.size, set.files.length], [15, 2]);
  assert.deepEqual(await readManifest(JSON.stringify(set), set.id), set);
});

/** Case D2: each is no manifest. @type {Record<string, (manifest: any) => unknown>} */
const DAMAGED = {
  "no JSON": () => undefined,
  "a list": () => [],
  null: () => null,
  "no version": ({ version, ...rest }) => rest,
  "version as text": (m) => ({ ...m, version: "1" }),
  "an older version": (m) => ({ ...m, version: 0 }),
  "another id than its file's name": (m) => ({ ...m, id: `sha256-${B}` }),
  "a name that is none": (m) => ({ ...m, name: 7 }),
  "no parts": (m) => ({ ...m, parts: [] }),
  "a part without a size": (m) => ({ ...m, parts: [{ sha256: A }] }),
  "another part than the id": (m) => ({ ...m, parts: [{ sha256: B, size: 10 }] }),
  "a digest that is none": (m) => ({ ...m, files: [{ sha256: "../../x", size: 10 }] }),
  "a negative size": (m) => ({ ...m, size: -10, files: [{ sha256: A, size: -10 }] }),
  "a size that is not that of its files": (m) => ({ ...m, size: 11 }),
  "sources that are no list": (m) => ({ ...m, sources: {} }),
  "a source without a key": (m) => ({ ...m, sources: [{ display: "x", etag: null }] }),
  "an ETag that is none": (m) => ({ ...m, sources: [{ ...SOURCE, etag: 7 }] }),
  "a projector that is none": (m) => ({ ...m, projector: "x" }),
  "no licence": ({ license, ...rest }) => rest,
  "an architecture that is none": (m) => ({ ...m, architecture: 1 }),
  "no time": (m) => ({ ...m, usedAt: "yesterday" }),
  "pinned as text": (m) => ({ ...m, pinned: "no" }),
};

for (const [what, damage] of Object.entries(DAMAGED)) {
  test(`not believed (case D2): ${what}`, async () => {
    const manifest = await makeManifest([fetched(A, 10)], { name: "a.gguf", sources: [SOURCE] });
    const text = JSON.stringify(damage(manifest)) ?? JSON.stringify(manifest).slice(0, -20);
    assert.equal(await readManifest(text, manifest.id), null);
  });
}

test("a manifest of a newer version is told, whatever else it says", async () => {
  await assert.rejects(readManifest('{"version": 2, "parts": "elsewhere"}', `sha256-${A}`), {
    code: "version_mismatch",
    detail: { found: 2, expected: 1 },
  });
});

test("what comes again keeps what was known of it", async () => {
  const known = {
    ...(await makeManifest([fetched(A, 10)], { name: "first", sources: [SOURCE], pinned: true })),
    projector: `sha256-${B}`,
    addedAt: "2020-01-01T00:00:00.000Z",
  };
  const mirror = { key: B, display: "https://mirror.test/a.gguf", etag: null };
  const renewed = { ...SOURCE, etag: '"2"' };
  const fresh = await makeManifest([fetched(A, 10)], { name: "second", sources: [mirror, renewed] });
  const merged = mergeManifests(known, fresh);
  assert.deepEqual(merged.sources, [mirror, renewed]);
  assert.deepEqual(
    [merged.name, merged.pinned, merged.projector, merged.addedAt],
    ["first", true, known.projector, known.addedAt],
  );
  assert.equal(
    mergeManifests({ ...known, sources: [] }, fresh).name,
    "second",
    "a repaired one learns its name",
  );
});

test("names for files", () => {
  const names = ["a.gguf", "x/y/a.GGUF", "m-00002-of-00003.gguf", "../..", "ä ?.gguf", ""];
  assert.deepEqual(names.map(baseName), ["a", "a", "m", "model", "_ _", "model"]);
});
