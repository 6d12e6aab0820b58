// Makes room for bytes that are about to come: measures, and deletes what may go.
//
// Counterpart: quota.js decides who goes. Deletes no model by itself: the store does, which knows the locks.

import { discard } from "./completion.js";
import { withLock } from "./locks.js";
import { lockNames, partialKey } from "./names.js";
import { availableBytes, chooseVictims, evictable, storageFull } from "./quota.js";
import { ignoreTaken } from "./sharing.js";

/** @import { HeadraceError } from "../errors.js" */
/** @import { Figures } from "./quota.js" */
/** @import { Storage, StoredModel } from "./types.js" */

/**
 * `remove` rejects with model_in_use.
 * @typedef {{list(): Promise<StoredModel[]>, remove(id: string): Promise<void>}} Models
 */

export class Room {
  #storage;
  #limitBytes;
  #models;

  /**
   * @param {Storage} storage
   * @param {number | null} limitBytes of all models together
   * @param {Models} models
   */
  constructor(storage, limitBytes, models) {
    this.#storage = storage;
    this.#limitBytes = limitBytes;
    this.#models = models;
  }

  /** @returns {Promise<Figures>} */
  async figures() {
    const [{ usedBytes, quotaBytes }, files] = await Promise.all([
      this.#storage.estimate(),
      this.#storage.list(),
    ]);
    const modelBytes = files.reduce((sum, { size }) => sum + size, 0);
    return { usedBytes, quotaBytes, modelBytes, limitBytes: this.#limitBytes };
  }

  /**
   * @param {string} name of what is about to come
   * @param {number} needed bytes
   * @param {{mayEvict: boolean, keep?: string[]}} options whether models that nobody uses may be deleted, and
   *   digests of files that must stay
   * @throws {HeadraceError} storage_full, and then nothing was deleted in vain
   */
  async make(name, needed, { mayEvict, keep = [] }) {
    if (needed <= availableBytes(await this.figures())) return;
    if (mayEvict) await this.#removeAbandoned();
    /** @type {Set<string>} models that somebody began to use meanwhile */
    const busy = new Set();
    for (;;) {
      const figures = await this.figures();
      const missing = needed - availableBytes(figures);
      if (missing <= 0) return;
      const candidates = (await this.#evictable(keep)).filter(({ id }) => !busy.has(id));
      const victims = mayEvict ? chooseVictims(candidates, missing) : null;
      if (!victims) throw storageFull(name, needed, figures, candidates);
      const [{ id }] = victims;
      await this.#models.remove(id).catch((error) => {
        ignoreTaken(error);
        busy.add(id);
      });
    }
  }

  /**
   * For a browser that does not tell how much it lets us keep (Chromium does not): the least recently used
   * model goes.
   * @param {string[]} keep digests of files that must stay
   * @returns {Promise<boolean>} whether there was one
   */
  async evictOne(keep) {
    for (const { id } of await this.#evictable(keep)) {
      try {
        await this.#models.remove(id);
        return true;
      } catch (error) {
        ignoreTaken(error);
      }
    }
    return false;
  }

  /**
   * @param {string} name
   * @param {number} needed
   * @returns {Promise<HeadraceError>} for a write that the browser refused
   */
  async full(name, needed) {
    return storageFull(name, needed, await this.figures(), await this.#evictable());
  }

  /** @param {string[]} [keep] digests of files that must stay */
  async #evictable(keep = []) {
    const models = await this.#models.list();
    const kept = models.filter(({ files }) => files.some(({ sha256 }) => keep.includes(sha256)));
    return evictable(
      models,
      kept.map(({ id }) => id),
    );
  }

  /** @param {Set<string>} keys of downloads; those that somebody works on are left alone */
  async removeLeft(keys) {
    for (const key of keys) {
      const remove = () => discard(this.#storage, key);
      await withLock(lockNames(this.#storage).fetch(key), { wait: false }, remove).catch(ignoreTaken);
    }
  }

  /** Removes what is left of downloads that nobody continues now. */
  async #removeAbandoned() {
    const names = (await this.#storage.list()).map(({ name }) => name);
    await this.removeLeft(new Set(names.flatMap((name) => partialKey(name) ?? [])));
  }
}
