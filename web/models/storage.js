// Chooses where models are kept, and says why when that is not the disk.
//
// Counterpart: headrace/models/, which always has a disk. Runs in workers.

import { HeadraceError } from "../errors.js";
import { createMemoryStorage } from "./memory_storage.js";
import { openOpfsStorage } from "./opfs_storage.js";

/** @import { Storage } from "./types.js" */

/**
 * @param {"auto" | "memory"} kind "auto": on disk, where this browser and this page have one
 * @returns {Promise<{storage: Storage, reason: string | null}>} `reason` is a sentence that says why "auto"
 *   became memory; null when it did not
 */
export async function openStorage(kind) {
  if (kind === "memory") return { storage: createMemoryStorage(), reason: null };
  const lacking = whatIsLacking();
  if (lacking) return inMemory(lacking);
  try {
    return { storage: await openOpfsStorage(), reason: null };
  } catch (error) {
    return inMemory(HeadraceError.from(error, "storage_failed", "no disk").message);
  }
}

/** @returns {string | null} */
function whatIsLacking() {
  if (!globalThis.isSecureContext) return "the page is not served over HTTPS";
  if (typeof navigator.storage?.getDirectory !== "function") return "this browser has no private file system";
  const { prototype } = globalThis.FileSystemFileHandle ?? {};
  const needed = ["createSyncAccessHandle", "move"];
  const absent = needed.filter((name) => typeof Reflect.get(prototype ?? {}, name) !== "function");
  return absent.length > 0 ? `this browser's private file system lacks ${absent.join(" and ")}` : null;
}

/** @param {string} why */
function inMemory(why) {
  return { storage: createMemoryStorage(), reason: `models are kept in memory only: ${why}` };
}
