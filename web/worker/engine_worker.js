// The worker's entry: reads commands, starts the engine, posts events. One worker holds one engine.
//
// Counterpart: endpoints/worker_link.js in the page; the messages are told in protocol.js. Not where the
// engine is driven (tick_loop.js) or touched (engine_port.js).

import { HeadraceError } from "../errors.js";
import { findArtifact } from "./artifact.js";
import { loadWhereItWorks } from "./backend_attempts.js";
import { EngineLoader } from "./engine_loader.js";
import { EXPECTED_ABI_VERSION } from "./engine_port.js";
import { expectedLayers, layersKey } from "./gpu_layers.js";
import { browserVersion, GpuVerdicts } from "./gpu_verdicts.js";
import { ModelOpener } from "./model_source.js";
import { TickLoop } from "./tick_loop.js";

/** @import { OpenedModel } from "./model_source.js" */
/** @import { Command, ModelFiles, OpenCommand, Progress, WorkerEvent } from "./protocol.js" */

const PROGRESS_INTERVAL_MS = 100;

const scope = /** @type {DedicatedWorkerGlobalScope} */ (/** @type {unknown} */ (globalThis));

/** @type {TickLoop | null} */
let loop = null;

scope.onmessage = (/** @type {MessageEvent<Command>} */ { data: command }) => {
  switch (command.type) {
    case "open":
      open(command).catch(fail);
      break;
    case "submit":
      loop?.submit(command.request);
      break;
    case "cancel":
      loop?.cancel(command.id);
      break;
    case "close":
      close();
      break;
  }
};

scope.onmessageerror = () =>
  fail(new HeadraceError("worker_crashed", "the engine's worker received a message it could not read"));
scope.onunhandledrejection = (/** @type {PromiseRejectionEvent} */ { reason }) =>
  fail(HeadraceError.from(reason, "worker_crashed", "the engine's worker failed"));

async function close() {
  await loop?.close();
  post([{ type: "closed" }]);
  scope.close();
}

/** @param {OpenCommand} command */
async function open({ artifactsUrl, artifact, threads, gpu, files, store, options, lock }) {
  await holdLock(lock);
  const report = progressReporter();

  report({ phase: "start", loaded: 0, total: 1 });
  const addresses = await findArtifact(artifactsUrl, artifact, EXPECTED_ABI_VERSION);
  const loader = await EngineLoader.start(addresses, threads, gpu);
  report({ phase: "start", loaded: 1, total: 1 });

  const opener = new ModelOpener(store, (file, progress) => report({ file, ...progress }));
  const opened = await opener.open(files);
  post([{ type: "opened", source: opened.model.source, reasons: opener.reasons }]);
  try {
    const { ready, reasons } = await loadWhereItWorks({
      gpu,
      options,
      model: layersKey(opened.model, options),
      layers: () => gpu && expectedLayers(opened.model.files, options, gpu.adapter.limits),
      verdicts: (adapter) => GpuVerdicts.open({ adapter, browser: browserVersion(), build: addresses.build }),
      load: (attempt) =>
        loader.load(opened, attempt, (fraction) => report({ phase: "load", loaded: fraction, total: 1 })),
    });
    const storage = { kind: opened.model.source.kind, ...loader.storageCounters };
    loop = new TickLoop(loader.port, post, fail);
    post([{ ...ready, storage, heapBytes: loader.port.heapBytes, reasons }]);
  } finally {
    // A model that is loaded lies in memory.
    closeFiles(opened);
  }
}

/** @param {ModelFiles<OpenedModel>} files */
function closeFiles({ model, draftModel, adapters = [] }) {
  const models = [model, draftModel, ...adapters.map((adapter) => adapter.model)];
  for (const { file } of models.flatMap((opened) => opened?.files ?? [])) file.close();
}

/**
 * A killed worker tells nobody; but the browser releases its lock, and the page waits for that. Where locks
 * do not exist or are refused, both sides do without.
 * @param {string} name
 * @returns {Promise<void>} resolves when the lock is held, or cannot be
 */
async function holdLock(name) {
  await new Promise((held) => {
    const forever = navigator.locks?.request(name, () => {
      held(true);
      return new Promise(() => {});
    });
    if (forever) forever.catch(held);
    else held(false);
  });
}

/**
 * The store speaks ten times a second by itself.
 * @returns {(progress: Progress) => void}
 */
function progressReporter() {
  let lastTime = -Infinity;
  let lastPhase = "";
  return (progress) => {
    const now = performance.now();
    const isLoading =
      progress.phase === lastPhase && !("file" in progress) && progress.loaded !== progress.total;
    if (isLoading && now - lastTime < PROGRESS_INTERVAL_MS) return;
    lastTime = now;
    lastPhase = progress.phase;
    post([{ type: "progress", ...progress }]);
  };
}

/** @param {WorkerEvent[]} events */
function post(events) {
  scope.postMessage({ events });
}

/** @param {unknown} error */
function fail(error) {
  post([
    {
      type: "engine_failed",
      error: HeadraceError.from(error, "internal", "the engine's worker failed").toWire(),
    },
  ]);
}
