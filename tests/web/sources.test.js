// What a user names a model by, and the files that are meant.
//
// That both twins give the same URLs, keys and sentences is tested in tests/python/test_models_sources.py.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { isModelId } from "../../web/models/names.js";
import { resolveRemote } from "../../web/models/sources.js";
import { shardNames } from "../../web/models/shard_names.js";

const SITE = "https://site.example/models";
const TRIO = [1, 2, 3].map((number) => `${SITE}/m-0000${number}-of-00003.gguf`);
const urls = ({ files }) => files.map(({ url }) => url);

test("relative URLs and URL objects, keys of their absolute form", async () => {
  const model = await resolveRemote("models/m.gguf", { base: "https://site.example/page.html" });
  assert.deepEqual(urls(model), [`${SITE}/m.gguf`]);
  assert.equal(model.key, createHash("sha256").update(`${SITE}/m.gguf`).digest("hex"));
  assert.equal((await resolveRemote(new URL(`${SITE}/m.gguf#x`))).key, model.key);
  await assert.rejects(resolveRemote("models/m.gguf"), { code: "invalid_option", message: /absolute URL/ });
  await assert.rejects(resolveRemote("blob:https://site.example/1"), { code: "invalid_option" });
});

test("hf: with folders and a revision, and without a file", async () => {
  const hub = "http://127.0.0.1:1/";
  const model = await resolveRemote("hf:o/r/a/m.gguf@refs/pr/1", { huggingFace: hub });
  assert.deepEqual(urls(model), ["http://127.0.0.1:1/o/r/resolve/refs%2Fpr%2F1/a/m.gguf"]);
  await assert.rejects(resolveRemote("hf:o/r"), {
    code: "invalid_option",
    message: /hf:owner\/repo\/file\.gguf/,
  });
});

test("case F13: ?download=true, upper case, one of one", async () => {
  const plain = await resolveRemote(`${SITE}/m.gguf`);
  const download = await resolveRemote(`${SITE}/m.gguf?download=true`);
  assert.equal(plain.key, download.key);
  assert.equal(download.files[0].display, `${SITE}/m.gguf`);
  assert.equal((await resolveRemote(`${SITE}/m-00001-of-00001.gguf`)).files.length, 1);
  const upper = await resolveRemote(`${SITE}/M-00002-OF-00003.GGUF`);
  assert.deepEqual(upper.files.map(({ name }) => name), shardNames("M-00001-OF-00003.GGUF").names);
});

test("cases F10, F11 and F14: any shard stands for all, a list must have all", async () => {
  assert.deepEqual(urls(await resolveRemote(TRIO[1])), TRIO);
  assert.deepEqual(urls(await resolveRemote([TRIO[2], TRIO[0], TRIO[1]])), TRIO);
  await assert.rejects(resolveRemote([TRIO[0], TRIO[2]]), {
    code: "invalid_option",
    message: "the list lacks m-00002-of-00003.gguf",
  });
});

test("case D10: a password goes into a header, and is shown nowhere", async () => {
  const { files } = await resolveRemote("https://user:secret@site.example/m.gguf?token=secret");
  assert.equal(files[0].headers.Authorization, `Basic ${btoa("user:secret")}`);
  assert.equal(files[0].url, "https://site.example/m.gguf?token=secret");
  assert.equal(files[0].display, "https://site.example/m.gguf");
  assert.equal(files[0].key, (await resolveRemote("https://site.example/m.gguf?token=secret")).key);
});

test("ids of stored models are told from where one can be fetched", async () => {
  const id = `sha256-${"a".repeat(64)}`;
  assert.ok(isModelId(id) && !isModelId(id.toUpperCase()) && !isModelId(`${id}\n`));
  await assert.rejects(resolveRemote(id), { code: "invalid_option" });
});
