// What is known of one adapter from earlier loads: operations that agree with the CPU's, what was wrong, and
// how many layers of a model fit. Kept in a folder of its own, one small file per adapter, browser and build.
//
// Counterparts: backend_attempts.js asks and tells, native/engine/gpu_self_test.* makes the comparison. Only a
// memory: what cannot be read counts as nothing known, and what cannot be written is forgotten.

import { withLock } from "../models/locks.js";
import { createMemoryStorage } from "../models/memory_storage.js";
import { openOpfsStorage } from "../models/opfs_storage.js";
import { sha256Hex } from "../models/sha256.js";

/** @import { WireError } from "../errors.js" */
/** @import { AdapterFacts } from "../gpu_adapter.js" */
/** @import { Storage } from "../models/types.js" */

/** A wrong answer; `when` is milliseconds since 1970. @typedef {WireError & {when: number}} Failure */

/**
 * Layers of one model, the output layer counted: the most that has worked, -1 for all, and the fewest that did
 * not fit; null for what was not tried.
 * @typedef {{worked: number | null, tooMany: number | null, when: number}} LayerMemory
 */

/**
 * `proven` are signatures of operations that agree with the CPU's.
 * @typedef {{proven: ReadonlySet<string>, failed: Failure | null,
 *   models: ReadonlyMap<string, LayerMemory>}} Verdicts
 */

/**
 * What verdicts hold for: the same adapter in the same browser with the same engine.
 * @typedef {{adapter: AdapterFacts, browser: string, build: string}} VerdictScope
 */

const FOLDER = "headrace-webgpu";

/** A driver may be repaired without anything here changing, so what was bad is tried again after this. */
const BAD_FOR_MS = 30 * 24 * 3600 * 1000;

/** Files of adapters, browsers and builds that have not been seen for this long are removed. */
const KEPT_FOR_MS = 90 * 24 * 3600 * 1000;

/** Files are small as long as lists are: more than this no model needs. */
const MAX_PROVEN = 4096;
const MAX_MODELS = 64;

/** @type {Verdicts} */
export const NOTHING_KNOWN = Object.freeze({ proven: new Set(), failed: null, models: new Map() });

/** The verdicts of one scope. No method rejects. */
export class GpuVerdicts {
  #storage;
  #name;
  #now;

  /**
   * On disk where there is one, else for as long as this worker lives.
   * @param {VerdictScope} scope
   * @returns {Promise<GpuVerdicts>}
   */
  static async open(scope) {
    const storage = await openOpfsStorage(FOLDER).catch(() => createMemoryStorage());
    return GpuVerdicts.in(storage, scope);
  }

  /**
   * @param {Storage} storage
   * @param {VerdictScope} scope
   * @param {() => number} [now] milliseconds since 1970
   * @returns {Promise<GpuVerdicts>}
   */
  static async in(storage, { adapter, browser, build }, now = Date.now) {
    const { info, features, limits } = adapter;
    const { vendor, architecture, device, description } = info;
    // Browsers hide most of the name, and kernels depend on features and limits.
    const can = [[...features].sort(), Object.entries(limits).sort(([a], [b]) => (a < b ? -1 : 1))];
    const named = [vendor, architecture, device, description, browser, build];
    const key = await sha256Hex(JSON.stringify([named, can]));
    return new GpuVerdicts(storage, `${key}.json`, now);
  }

  /**
   * @param {Storage} storage
   * @param {string} name
   * @param {() => number} now
   */
  constructor(storage, name, now) {
    this.#storage = storage;
    this.#name = name;
    this.#now = now;
  }

  /** @returns {Promise<Verdicts>} what is known now, without what was bad too long ago */
  async read() {
    const { proven, failed, models } = await this.#stored();
    const oldest = this.#now() - BAD_FOR_MS;
    const recent = [...models].filter(([, { tooMany, when }]) => tooMany === null || when > oldest);
    return { proven, failed: failed && failed.when > oldest ? failed : null, models: new Map(recent) };
  }

  /**
   * Adds operations that agree; a failure of one of them is thereby refuted.
   * @param {readonly string[]} operations
   */
  async prove(operations) {
    await this.#change((verdicts) => {
      const proven = [...new Set([...verdicts.proven, ...operations])].slice(-MAX_PROVEN);
      const refuted = verdicts.failed && operations.includes(String(verdicts.failed.detail.op));
      return { ...verdicts, proven: new Set(proven), failed: refuted ? null : verdicts.failed };
    });
  }

  /**
   * Keeps a wrong answer, and no longer believes in the operation that gave it.
   * @param {WireError} error
   */
  async fail({ code, message, detail }) {
    await this.#change((verdicts) => {
      const proven = new Set(verdicts.proven);
      proven.delete(String(detail.op));
      return { ...verdicts, proven, failed: { code, message, detail, when: this.#now() } };
    });
  }

  /**
   * @param {string} model
   * @param {Omit<LayerMemory, "when">} layers
   */
  async rememberLayers(model, layers) {
    await this.#change((verdicts) => {
      const models = new Map(verdicts.models);
      const before = models.get(model);
      // What did not fit once is tried again some day, however often fewer layers were loaded since.
      const when = before?.tooMany === layers.tooMany ? before.when : this.#now();
      // At the end again: the first is the one that was not used for longest.
      models.delete(model);
      models.set(model, { ...layers, when });
      return { ...verdicts, models: new Map([...models].slice(-MAX_MODELS)) };
    });
  }

  /** @param {(verdicts: Verdicts) => Verdicts} change */
  async #change(change) {
    try {
      // Other tabs may be at the same: what they have proven is read again, not overwritten.
      await withLock(`${FOLDER}-${this.#name}`, {}, async () => {
        const { proven, failed, models } = change(await this.#stored());
        const text = { version: 1, usedAt: this.#now(), proven: [...proven], failed, models: [...models] };
        await this.#storage.writeText(this.#name, JSON.stringify(text));
      });
      await this.#removeOld();
    } catch {
      // No room, or the site's data were just cleared: the next load compares again.
    }
  }

  /** @returns {Promise<Verdicts>} */
  async #stored() {
    try {
      return parse(JSON.parse((await this.#storage.readText(this.#name)) ?? "null"));
    } catch {
      return NOTHING_KNOWN;
    }
  }

  async #removeOld() {
    for (const { name } of await this.#storage.list()) {
      if (name === this.#name) continue;
      const usedAt = await usedAtOf(this.#storage, name);
      if (usedAt < this.#now() - KEPT_FOR_MS) await this.#storage.remove(name);
    }
  }
}

/** @returns {string} what names this browser and its version, as it tells them itself; not to be understood */
export function browserVersion() {
  const { brands = [] } = Reflect.get(navigator, "userAgentData") ?? {};
  return JSON.stringify([navigator.userAgent, brands]);
}

/**
 * @param {Storage} storage
 * @param {string} name
 * @returns {Promise<number>} 0 when nobody can tell
 */
async function usedAtOf(storage, name) {
  try {
    const { usedAt } = JSON.parse((await storage.readText(name)) ?? "null");
    return Number.isFinite(usedAt) ? usedAt : 0;
  } catch {
    return 0;
  }
}

/**
 * A page can write to its own disk, and a crash can leave anything: every part is looked at.
 * @param {any} stored
 * @returns {Verdicts}
 */
function parse(stored) {
  if (stored?.version !== 1) return NOTHING_KNOWN;
  const { proven, failed, models } = stored;
  return {
    proven: new Set(list(proven).filter((operation) => typeof operation === "string")),
    failed: isFailure(failed) ? failed : null,
    models: new Map(list(models).filter(isModel)),
  };
}

/**
 * @param {unknown} value
 * @returns {any[]}
 */
function list(value) {
  return Array.isArray(value) ? value : [];
}

/** @param {any} failed */
function isFailure(failed) {
  return (
    typeof failed?.code === "string" &&
    typeof failed.message === "string" &&
    typeof failed.detail === "object" &&
    failed.detail !== null &&
    Number.isFinite(failed.when)
  );
}

/** @param {any} entry */
function isModel(entry) {
  const [model, layers] = list(entry);
  const isCount = (/** @type {unknown} */ value) => value === null || Number.isInteger(value);
  return (
    typeof model === "string" &&
    isCount(layers?.worked) &&
    isCount(layers?.tooMany) &&
    Number.isFinite(layers?.when)
  );
}
