// The messages between the page and its store worker. Types only, no code.
//
// Counterparts: store_client.js in the page, store_worker.js. Every call has a number; what belongs to it
// carries the same one.

/** @import { WireError } from "../errors.js" */
/** @import { Manifest, StoredModel, StoreProgress } from "./types.js" */

/**
 * What an application names a model by: addresses (absolute URLs, or with "hf:"), the id of a stored model,
 * or local files. `headers` and `sha256` are those of `resolveRemote`; files with an `id` are of a model that
 * the page's store has in memory.
 * @typedef {{kind: "remote", addresses: string[], headers: Record<string, string>,
 *     sha256: (string | null)[] | null}
 *   | {kind: "stored", id: string}
 *   | {kind: "files", files: {blob: Blob, name: string}[], id?: string}} ModelInput
 */

/** @typedef {Extract<ModelInput, {kind: "remote"}>} RemoteInput */

/**
 * @typedef {object} StoreUsage
 * @property {number} usedBytes of the whole origin, as the browser tells it
 * @property {number | null} quotaBytes what the origin may use; null when the browser does not tell
 * @property {number} modelBytes of stored models and unfinished downloads
 * @property {number | null} limitBytes that the client was given
 * @property {"opfs" | "memory"} storage where models are kept; "memory" ends with the page
 * @property {string | null} reason why that is memory
 */

/** Options that cross to the worker. @typedef {{pinned?: boolean, evict?: boolean}} RoomOptions */

/**
 * Arguments and results of what the worker can be asked.
 * @typedef {object} StoreCalls
 * @property {{arguments: {}, result: StoredModel[]}} list
 * @property {{arguments: {}, result: StoreUsage}} usage
 * @property {{arguments: {source: RemoteInput, projector: RemoteInput | null, refresh: boolean,
 *   huggingFace?: string} & RoomOptions, result: Manifest}} download
 * @property {{arguments: {files: {blob: Blob, name: string}[], name?: string} & RoomOptions,
 *   result: Manifest}} import
 * @property {{arguments: {id: string}, result: {ok: boolean, damaged: string[]}}} verify
 * @property {{arguments: {id: string, pinned: boolean}, result: Manifest}} pin
 * @property {{arguments: {id: string, wait: boolean}, result: void}} delete
 * @property {{arguments: {id: string}, result: {name: string, blob: Blob}[]}} export
 */

/** @typedef {keyof StoreCalls} StoreMethod */

/**
 * `start` comes first and once: the worker holds the Web Lock `lock` for as long as it lives.
 * @typedef {{type: "start", limitBytes: number | null, lock: string}
 *   | {[M in StoreMethod]: {type: "call", id: number, method: M, arguments:
 *   StoreCalls[M]["arguments"]}}[StoreMethod] | {type: "abort", id: number}} StoreCommand
 */

/**
 * @typedef {{type: "progress", id: number, progress: StoreProgress}
 *   | {type: "done", id: number, result: unknown}
 *   | {type: "failed", id: number, error: WireError}
 *   | {type: "started"}} StoreEvent
 */

export {};
