// What every kind of storage promises, as scenarios that need no test framework: they run in Node and in a
// browser's worker alike.
//
// Counterpart: `Storage` in web/models/types.js. tests/web/memory_storage.test.js and
// tests/browser/test_storage.py run them. What only a disk can do (survive, be full) is tested there.

/** @import { ReadableFile, Storage, WritableFile } from "../../web/models/types.js" */

const MIB = 1024 * 1024;

/** Larger than what memory_storage.js holds of a file as arrays, and no multiple of its blocks. */
const LARGE_BYTES = 30 * MIB + 12_345;

/** @type {Record<string, (storage: Storage) => Promise<void>>} */
export const SCENARIOS = {
  async "a new folder is empty"(storage) {
    same(await storage.list(), []);
    same(await storage.readText("a.json"), null);
    await fails("model_not_found", storage.openRead("a.gguf"));
    await fails("model_not_found", storage.blob("a.gguf"));
  },

  async "bytes are read where they were written, over every border"(storage) {
    const bytes = pattern(LARGE_BYTES);
    const file = await storage.openWrite("a.gguf");
    // Pieces that fit no block, the second half first.
    for (const [from, to] of [
      [LARGE_BYTES >> 1, LARGE_BYTES],
      [0, LARGE_BYTES >> 1],
    ]) {
      for (let at = from; at < to; at += 1_000_003) {
        file.write(bytes.subarray(at, Math.min(at + 1_000_003, to)), at);
      }
    }
    same(file.size, LARGE_BYTES);
    for (const at of [0, 1, MIB - 1, 4 * MIB - 3, 12 * MIB - 1, LARGE_BYTES - 70_000]) {
      same(readPart(file, at, 70_000), bytes.slice(at, at + 70_000));
    }
    same(readPart(file, 0, LARGE_BYTES), bytes);
    file.close();
    same(await contentOf(storage, "a.gguf"), bytes);
  },

  async "one write may be larger than everything that is kept in the heap"(storage) {
    const bytes = pattern(LARGE_BYTES);
    const file = await storage.openWrite("a.gguf");
    file.write(bytes, 5);
    same(file.size, LARGE_BYTES + 5);
    same(readPart(file, 5, LARGE_BYTES), bytes);
    file.close();
  },

  async "bytes are replaced in the middle of what was there before"(storage) {
    const bytes = pattern(9 * MIB);
    await put(storage, "a.gguf", bytes);
    const file = await storage.openWrite("a.gguf");
    const change = new Uint8Array(300).fill(255);
    for (const at of [4 * MIB - 100, 0, 9 * MIB - 300]) {
      file.write(change, at);
      bytes.set(change, at);
    }
    file.close();
    same(await contentOf(storage, "a.gguf"), bytes);
  },

  async "a read ends where the file does"(storage) {
    await put(storage, "a.gguf", pattern(100));
    const file = await storage.openRead("a.gguf");
    const target = new Uint8Array(50).fill(9);
    same(file.read(target, 90), 10);
    same(target.slice(0, 10), pattern(100).slice(90));
    same(target.slice(10), new Uint8Array(40).fill(9));
    same(file.read(target, 100), 0);
    same(file.read(target, 1e12), 0);
    same(file.read(new Uint8Array(0), 0), 0);
    file.close();
  },

  async "a gap holds zeros"(storage) {
    const file = await storage.openWrite("a.gguf");
    file.write(pattern(10), 0);
    file.write(pattern(10), 17 * MIB);
    same(readPart(file, 0, 30), joined(pattern(10), new Uint8Array(20)));
    same(readPart(file, 17 * MIB - 10, 20), joined(new Uint8Array(10), pattern(10)));
    file.close();
    same(await contentOf(storage, "a.gguf"), joined(pattern(10), new Uint8Array(17 * MIB - 10), pattern(10)));
  },

  async "truncate cuts, and what comes back later is zeros"(storage) {
    const bytes = pattern(10 * MIB);
    for (const size of [5 * MIB + 1, 4 * MIB, 3, 0]) {
      await put(storage, "a.gguf", bytes);
      const file = await storage.openWrite("a.gguf");
      file.truncate(size);
      same(file.size, size);
      same(readPart(file, 0, 10 * MIB), bytes.slice(0, size));
      file.truncate(8 * MIB);
      same(readPart(file, 0, 10 * MIB), joined(bytes.slice(0, size), new Uint8Array(8 * MIB - size)));
      file.close();
      same(await contentOf(storage, "a.gguf"), joined(bytes.slice(0, size), new Uint8Array(8 * MIB - size)));
    }
  },

  async "several read at once"(storage) {
    await put(storage, "a.gguf", pattern(1000));
    const files = [await storage.openRead("a.gguf"), await storage.openRead("a.gguf")];
    files[0].close();
    files.push(await storage.openRead("a.gguf"));
    same(readPart(files[1], 500, 100), pattern(1000).slice(500, 600));
    same(readPart(files[2], 0, 1000), pattern(1000));
    for (const file of files) file.close();
  },

  async "one writes, alone"(storage) {
    const written = await storage.openWrite("a.gguf");
    await fails("model_in_use", storage.openWrite("a.gguf"));
    await fails("model_in_use", storage.openRead("a.gguf"));
    written.close();
    const read = await storage.openRead("a.gguf");
    await fails("model_in_use", storage.openWrite("a.gguf"));
    read.close();
    (await storage.openWrite("a.gguf")).close();
  },

  async "what is open cannot be moved, replaced or removed"(storage) {
    for (const open of /** @type {const} */ (["openRead", "openWrite"])) {
      await put(storage, "a.gguf", pattern(10));
      await put(storage, "b.gguf", pattern(20));
      const file = await storage[open]("a.gguf");
      await fails("model_in_use", storage.remove("a.gguf"));
      await fails("model_in_use", storage.rename("a.gguf", "c.gguf"));
      await fails("model_in_use", storage.rename("b.gguf", "a.gguf"));
      await fails("model_in_use", storage.writeText("a.gguf", "text"));
      same(readPart(file, 0, 20), pattern(10));
      file.close();
      same(await contentOf(storage, "a.gguf"), pattern(10));
      same(await contentOf(storage, "b.gguf"), pattern(20));
      same((await storage.list()).length, 2);
    }
  },

  async "a closed file is closed"(storage) {
    const file = await storage.openWrite("a.gguf");
    file.write(pattern(10), 0);
    file.close();
    file.close();
    throws("storage_failed", () => file.write(pattern(10), 0));
    throws("storage_failed", () => file.read(new Uint8Array(1), 0));
    const other = await storage.openWrite("a.gguf");
    file.close();
    await fails("model_in_use", storage.openRead("a.gguf"));
    other.close();
  },

  async "a reopened file goes on as it was left"(storage) {
    const first = await storage.openWrite("a.gguf");
    first.write(pattern(1000).subarray(0, 600), 0);
    first.flush();
    first.close();
    const second = await storage.openWrite("a.gguf");
    same(second.size, 600);
    same(readPart(second, 0, 600), pattern(1000).slice(0, 600));
    second.write(pattern(1000).subarray(600), 600);
    second.close();
    same(await contentOf(storage, "a.gguf"), pattern(1000));
  },

  async "rename moves and replaces"(storage) {
    await put(storage, "a.gguf", pattern(10));
    await put(storage, "b.gguf", pattern(20));
    await storage.rename("a.gguf", "b.gguf");
    same(await storage.list(), [{ name: "b.gguf", size: 10 }]);
    same(await contentOf(storage, "b.gguf"), pattern(10));
    await storage.rename("b.gguf", "b.gguf");
    await storage.rename("b.gguf", "c.gguf");
    same(await contentOf(storage, "c.gguf"), pattern(10));
    await fails("model_not_found", storage.rename("b.gguf", "c.gguf"));
    same(await contentOf(storage, "c.gguf"), pattern(10));
  },

  async "remove removes, and may find nothing"(storage) {
    await put(storage, "a.gguf", pattern(10));
    await storage.remove("a.gguf");
    await storage.remove("a.gguf");
    same(await storage.list(), []);
    const file = await storage.openWrite("a.gguf");
    same(file.size, 0);
    file.close();
  },

  async "text is replaced whole"(storage) {
    await storage.writeText("a.json", "x".repeat(100_000));
    await storage.writeText("a.json", "Grüße, 世界 😀");
    same(await storage.readText("a.json"), "Grüße, 世界 😀");
    await storage.writeText("a.json", "");
    same(await storage.readText("a.json"), "");
    same(await storage.list(), [{ name: "a.json", size: 0 }]);
  },

  async "text is seen as one of those that were written, whoever writes meanwhile"(storage) {
    const texts = ["a", "b"].map((letter) => letter.repeat(200_000));
    await storage.writeText("a.json", texts[0]);
    const writing = (async () => {
      for (let round = 0; round < 20; round += 1) await storage.writeText("a.json", texts[round % 2]);
    })();
    for (let round = 0; round < 20; round += 1) {
      const text = await storage.readText("a.json");
      if (text !== texts[0] && text !== texts[1]) throw new Error(`half a text, of ${text?.length}`);
    }
    await writing;
    same((await storage.list()).length, 1);
  },

  async "the list is in order of names, with sizes"(storage) {
    await put(storage, "b.gguf", pattern(5));
    await storage.writeText("model-1.json", "{}");
    await put(storage, "B.gguf", pattern(7));
    await put(storage, "a.gguf", pattern(6));
    same(await storage.list(), [
      { name: "B.gguf", size: 7 },
      { name: "a.gguf", size: 6 },
      { name: "b.gguf", size: 5 },
      { name: "model-1.json", size: 2 },
    ]);
  },

  async "a Blob has the file's bytes, gaps included"(storage) {
    const file = await storage.openWrite("a.gguf");
    file.write(pattern(100), 0);
    file.write(pattern(100), 9 * MIB);
    file.truncate(10 * MIB);
    file.close();
    const blob = await storage.blob("a.gguf");
    same(blob.size, 10 * MIB);
    const expected = joined(
      pattern(100),
      new Uint8Array(9 * MIB - 100),
      pattern(100),
      new Uint8Array(MIB - 100),
    );
    same(new Uint8Array(await blob.arrayBuffer()), expected);
  },

  async "other names are refused"(storage) {
    for (const name of ["", ".", "..", "a/b", "../a", "a b", "a~b", "ä", "a\0", "a\n", "a:b"]) {
      await fails("storage_failed", storage.openRead(name));
      await fails("storage_failed", storage.openWrite(name));
      await fails("storage_failed", storage.readText(name));
      await fails("storage_failed", storage.writeText(name, ""));
      await fails("storage_failed", storage.rename("a", name));
      await fails("storage_failed", storage.rename(name, "a"));
      await fails("storage_failed", storage.remove(name));
      await fails("storage_failed", storage.blob(name));
    }
    same(await storage.list(), []);
  },

  async "shared memory is read into, and written from"(storage) {
    const shared = new Uint8Array(new SharedArrayBuffer(3 * MIB), MIB, MIB);
    shared.set(pattern(MIB));
    await put(storage, "a.gguf", shared);
    shared.fill(0);
    const file = await storage.openRead("a.gguf");
    same(file.read(shared, 0), MIB);
    same(shared.slice(), pattern(MIB));
    same(new Uint8Array(shared.buffer, 0, MIB).slice(), new Uint8Array(MIB));
    same(new Uint8Array(shared.buffer, 2 * MIB).slice(), new Uint8Array(MIB));
    file.close();
  },

  async "the estimate counts"(storage) {
    const before = await storage.estimate();
    await put(storage, "a.gguf", pattern(3 * MIB));
    const { usedBytes, quotaBytes } = await storage.estimate();
    if (usedBytes < before.usedBytes + 2 * MIB)
      throw new Error(`${before.usedBytes}, then ${usedBytes} bytes`);
    if (quotaBytes !== null && quotaBytes < usedBytes) throw new Error(`${usedBytes} of ${quotaBytes} bytes`);
  },
};

/** Needs a disk with holes: elsewhere the gap costs what it is long. @type {typeof SCENARIOS} */
export const SPARSE_SCENARIOS = {
  async "places have 64 bits"(storage) {
    const file = await storage.openWrite("a.gguf");
    const places = [0, 2 ** 31 - 5, 2 ** 32 - 5, 5 * 2 ** 30];
    for (const [index, at] of places.entries()) file.write(pattern(10 + index), at);
    same(file.size, 5 * 2 ** 30 + 13);
    for (const [index, at] of places.entries()) same(readPart(file, at, 10 + index), pattern(10 + index));
    same(readPart(file, 5 * 2 ** 30 - 2 ** 32, 13), new Uint8Array(13));
    file.truncate(2 ** 32 + 1);
    file.close();
    same(await storage.list(), [{ name: "a.gguf", size: 2 ** 32 + 1 }]);
    const read = await storage.openRead("a.gguf");
    same(read.size, 2 ** 32 + 1);
    same(readPart(read, 2 ** 32 - 5, 10), pattern(11).slice(0, 6));
    read.close();
  },
};

/**
 * @param {() => Promise<Storage>} makeStorage an empty one each time
 * @param {typeof SCENARIOS} [scenarios]
 * @returns {Promise<Record<string, string>>} failures by the scenario's name; empty when all is well
 */
export async function failuresOf(makeStorage, scenarios = SCENARIOS) {
  /** @type {Record<string, string>} */
  const failures = {};
  for (const [name, scenario] of Object.entries(scenarios)) {
    try {
      await scenario(await makeStorage());
    } catch (error) {
      failures[name] = error instanceof Error ? `${error.stack}` : String(error);
    }
  }
  return failures;
}

/** @param {number} length @returns {Uint8Array} bytes that do not repeat after a power of two */
function pattern(length) {
  return Uint8Array.from({ length }, (_, index) => 1 + ((index + (index >> 8)) % 251));
}

/** @param {Uint8Array[]} parts */
function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param {Storage} storage @param {string} name @param {Uint8Array} bytes */
async function put(storage, name, bytes) {
  const file = await storage.openWrite(name);
  file.truncate(0);
  file.write(bytes, 0);
  file.close();
}

/** @param {Storage} storage @param {string} name */
async function contentOf(storage, name) {
  const file = await storage.openRead(name);
  const bytes = readPart(file, 0, file.size + 1);
  file.close();
  return bytes;
}

/** @param {ReadableFile} file @param {number} at @param {number} length */
function readPart(file, at, length) {
  const target = new Uint8Array(length);
  return target.slice(0, file.read(target, at));
}

/** @param {unknown} actual @param {unknown} expected */
function same(actual, expected) {
  if (actual instanceof Uint8Array && expected instanceof Uint8Array) {
    if (actual.length !== expected.length) throw new Error(`${actual.length} bytes, not ${expected.length}`);
    const at = actual.findIndex((byte, index) => byte !== expected[index]);
    if (at >= 0) throw new Error(`byte ${at} of ${actual.length} is ${actual[at]}, not ${expected[at]}`);
  } else if (JSON.stringify(actual) !== JSON.stringify(expected)) {
    throw new Error(`${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`);
  }
}

/** @param {string} code @param {Promise<unknown>} promise */
async function fails(code, promise) {
  const outcome = await promise.then(
    () => null,
    (error) => error,
  );
  throws(code, () => {
    if (outcome) throw outcome;
  });
}

/** @param {string} code @param {() => unknown} action */
function throws(code, action) {
  try {
    action();
  } catch (error) {
    const found = /** @type {any} */ (error);
    if (found.code !== code) throw new Error(`${found.code}, not ${code}: ${found.stack}`);
    return;
  }
  throw new Error(`nothing, not ${code}`);
}
