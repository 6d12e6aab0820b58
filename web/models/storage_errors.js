// What the kinds of storage have in common: which names there may be, and how their failures are told.
//
// Counterpart: opfs_storage.js and memory_storage.js raise these. model_store.js knows which model a file
// belongs to, and says more.

import { HeadraceError } from "../errors.js";

const NAME = /^[A-Za-z0-9._-]+$/;

/**
 * @param {string} name
 * @returns {boolean} whether a file of the store may be called so
 */
export function isFileName(name) {
  return NAME.test(name) && name !== "." && name !== "..";
}

/**
 * @param {string} name
 * @throws {HeadraceError} storage_failed when no file may be called so
 */
export function requireFileName(name) {
  if (isFileName(name)) return;
  throw new HeadraceError("storage_failed", `the model store has no file named ${JSON.stringify(name)}`, {
    detail: { file: name },
  });
}

/** @param {string} name @param {unknown} [cause] */
export function missing(name, cause) {
  return new HeadraceError("model_not_found", `the model store has no file ${name}`, {
    detail: { file: name },
    cause,
  });
}

/** @param {string} name @param {unknown} [cause] */
export function inUse(name, cause) {
  return new HeadraceError("model_in_use", `${name} in the model store is open, here or in another tab`, {
    detail: { file: name },
    cause,
  });
}

/** @param {string} name @param {unknown} [cause] */
export function full(name, cause) {
  return new HeadraceError("storage_full", `there is no room left in the model store for ${name}`, {
    detail: { file: name },
    cause,
  });
}

/** @param {string} name @param {unknown} [cause] */
export function failed(name, cause) {
  const reason = cause instanceof Error && cause.message ? `: ${cause.message}` : "";
  return new HeadraceError("storage_failed", `${name} in the model store cannot be used${reason}`, {
    detail: { file: name },
    cause,
  });
}

/** @param {string} name */
export function closed(name) {
  return new HeadraceError("storage_failed", `${name} in the model store was closed before`, {
    detail: { file: name },
  });
}
