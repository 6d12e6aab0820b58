// What both languages write down about stored models: web/models/ reads and writes tests/data/store_records.json.
//
// Counterpart: tests/python/test_models_records.py, the same file.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { modelId, readManifest } from "../../web/models/manifest.js";

const RECORDS = JSON.parse(await readFile(new URL("../data/store_records.json", import.meta.url), "utf8"));

for (const record of RECORDS.manifests) {
  test(`the manifest ${record.name} is read as it is`, async () => {
    const manifest = await readManifest(JSON.stringify(record), record.id);
    assert.deepEqual(manifest, record);
    assert.deepEqual(Object.keys(manifest ?? {}), Object.keys(record));
    assert.equal(await modelId(record.parts.map((/** @type {{sha256: string}} */ part) => part.sha256)), record.id);
  });
}
