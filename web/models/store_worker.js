// The worker of `client.models`: runs the model store for a page that must not block.
//
// Counterpart: store_client.js in the page; the messages are told in store_protocol.js. Endpoints do without
// it: each engine's worker uses the store itself, and both meet in OPFS and at the locks.

import { HeadraceError } from "../errors.js";
import { holdLock } from "./locks.js";
import { ModelStore } from "./model_store.js";
import { resolveRemote } from "./sources.js";
import { openStorage } from "./storage.js";

/** @import { BringOptions } from "./model_store.js" */
/** @import { RemoteInput, StoreCalls, StoreCommand, StoreEvent, StoreMethod } from "./store_protocol.js" */
/** @import { Manifest, StoreProgress } from "./types.js" */

/** @typedef {{store: ModelStore, reason: string | null}} Opened */

/**
 * What a call is given besides its arguments.
 * @typedef {Required<Pick<BringOptions, "onProgress" | "signal">>} Call
 */

/**
 * @type {{[M in StoreMethod]:
 *   (opened: Opened, given: StoreCalls[M]["arguments"], call: Call) => Promise<StoreCalls[M]["result"]>}}
 */
const METHODS = {
  list: ({ store }) => store.list(),
  usage: async ({ store, reason }) => ({ ...(await store.usage()), reason }),
  download: ({ store }, given, call) => download(store, given, call),
  import: ({ store }, { files, ...options }, call) => store.importFiles(files, { ...options, ...call }),
  verify: ({ store }, { id }, call) => store.verify(id, call),
  pin: ({ store }, { id, pinned }) => store.pin(id, pinned),
  delete: ({ store }, { id, wait }, { signal }) => store.delete(id, { wait, signal }),
  export: ({ store }, { id }) => store.export(id),
};

const scope = /** @type {DedicatedWorkerGlobalScope} */ (/** @type {unknown} */ (globalThis));

/** @type {Promise<Opened>} */
let opening;
/** @type {Map<number, AbortController>} */
const running = new Map();

scope.onmessage = (/** @type {MessageEvent<StoreCommand>} */ { data: command }) => {
  switch (command.type) {
    case "start":
      opening = start(command.limitBytes, command.lock);
      opening.catch(() => {});
      break;
    case "call":
      run(command);
      break;
    case "abort":
      running.get(command.id)?.abort();
      break;
  }
};

/**
 * @param {number | null} limitBytes
 * @param {string} lock
 * @returns {Promise<Opened>}
 */
async function start(limitBytes, lock) {
  // Held for ever: whoever gets it afterwards knows that this worker has gone.
  await holdLock(lock);
  post({ type: "started" });
  const { storage, reason } = await openStorage("auto");
  return { store: new ModelStore(storage, { limitBytes }), reason };
}

/** @param {Extract<StoreCommand, {type: "call"}>} command */
async function run({ id, method, arguments: given }) {
  const abort = new AbortController();
  running.set(id, abort);
  const onProgress = (/** @type {StoreProgress} */ progress) => post({ type: "progress", id, progress });
  try {
    const perform = /** @type {(opened: Opened, given: any, call: Call) => Promise<unknown>} */ (
      METHODS[method]
    );
    post({
      type: "done",
      id,
      result: await perform(await opening, given, { onProgress, signal: abort.signal }),
    });
  } catch (error) {
    post({
      type: "failed",
      id,
      error: HeadraceError.from(error, "internal", `models.${method} failed`).toWire(),
    });
  } finally {
    running.delete(id);
  }
}

/**
 * @param {ModelStore} store
 * @param {StoreCalls["download"]["arguments"]} given
 * @param {Call} call
 * @returns {Promise<Manifest>}
 */
async function download(store, { source, projector, huggingFace, refresh, pinned, evict }, call) {
  const bring = async (/** @type {RemoteInput} */ { addresses, headers, sha256 }) => {
    const remote = await resolveRemote(addresses, { huggingFace, headers, sha256: sha256 ?? undefined });
    return store.obtain(remote, { refresh, pinned, evict, ...call });
  };
  const model = await bring(source);
  if (!projector) return model;
  return store.link(model.id, (await bring(projector)).id);
}

/** @param {StoreEvent} event */
function post(event) {
  scope.postMessage(event);
}
