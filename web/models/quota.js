// Whether there is room for bytes that are about to come, and which models could make way: pure functions.
//
// Counterparts: model_store.js measures and deletes; headrace/models/quota.py is the Python twin. Never
// chooses a model that is pinned, in use or linked by another one.

import { HeadraceError } from "../errors.js";

/** @import { Manifest, StoredModel } from "./types.js" */

/**
 * @typedef {object} Figures
 * @property {number} usedBytes of the whole origin
 * @property {number | null} quotaBytes null when the browser does not tell
 * @property {number} modelBytes in the store's folder, unfinished downloads included
 * @property {number | null} limitBytes of the store, if it was given one
 */

/**
 * @param {Figures} figures
 * @returns {number} bytes that still fit; Infinity when nothing is known
 */
export function availableBytes({ usedBytes, quotaBytes, modelBytes, limitBytes }) {
  const quota = quotaBytes === null ? Infinity : quotaBytes - usedBytes;
  const limit = limitBytes === null ? Infinity : limitBytes - modelBytes;
  return Math.max(0, Math.min(quota, limit));
}

/**
 * @param {StoredModel[]} models
 * @param {readonly string[]} [keep] ids that must stay whatever else is true of them
 * @returns {StoredModel[]} those that may be evicted, least recently used first
 */
export function evictable(models, keep = []) {
  const linked = new Set(models.map(({ projector }) => projector));
  return models
    .filter(({ id, pinned, inUse }) => !pinned && !inUse && !linked.has(id) && !keep.includes(id))
    .sort((a, b) => Date.parse(a.usedAt) - Date.parse(b.usedAt));
}

/**
 * @template {{size: number}} T
 * @param {T[]} candidates least recently used first
 * @param {number} missing bytes
 * @returns {T[] | null} as few as are needed in that order; null when all together are too small
 */
export function chooseVictims(candidates, missing) {
  const victims = [];
  for (const candidate of candidates) {
    if (missing <= 0) break;
    victims.push(candidate);
    missing -= candidate.size;
  }
  return missing <= 0 ? victims : null;
}

/**
 * @param {string} name of what has no room
 * @param {number} neededBytes
 * @param {Figures} figures
 * @param {Manifest[]} candidates
 */
export function storageFull(name, neededBytes, figures, candidates) {
  const available = availableBytes(figures);
  const missingBytes = Math.max(0, neededBytes - available);
  const byLimit =
    figures.limitBytes !== null && available === Math.max(0, figures.limitBytes - figures.modelBytes);
  const where = byLimit ? "the models' limit" : "the browser's quota";
  const sentence =
    missingBytes > 0
      ? `there is no room to keep ${name}: ${inMegabytes(missingBytes)} of ${inMegabytes(neededBytes)} ` +
        `are missing within ${where}`
      : `there is no room to keep ${name}: the browser refused to store ${inMegabytes(neededBytes)} more`;
  const advice =
    candidates.length > 0
      ? 'delete models, or allow it with "evict"; store: "memory" runs a model without keeping it'
      : 'store: "memory" runs a model without keeping it';
  return new HeadraceError("storage_full", `${sentence}; ${advice}`, {
    detail: {
      neededBytes,
      availableBytes: Number.isFinite(available) ? available : null,
      missingBytes: missingBytes > 0 ? missingBytes : null,
      evictable: candidates.map(({ id, name: called, size }) => ({ id, name: called, size })),
    },
  });
}

/** @param {number} bytes */
function inMegabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
