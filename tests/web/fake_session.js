// A session on workers that only listen and say what a test has them say. Used by local_session.test.js and
// recovery.test.js.

import { LocalSession } from "../../web/endpoints/local_session.js";

export const CHOICE = Object.freeze({
  artifact: "st",
  backend: "cpu",
  threads: 1,
  reasons: ["As asked."],
  gpu: null,
});
export const READY = Object.freeze({
  type: "ready",
  model: {},
  operations: ["query", "embed"],
  options: {},
  backend: "cpu",
  reasons: [],
});
export const SOURCE = Object.freeze({ kind: "opfs", modelId: "sha256-x" });

/** All workers that were started since the session was opened. @type {FakeWorker[]} */
let started = [];

class FakeWorker {
  /** @type {any[]} */ commands = [];
  /** @type {(message: {data: object}) => void} */ onmessage = () => {};
  /** @type {(event: object) => void} */ onerror = () => {};
  isTerminated = false;

  constructor() {
    started.push(this);
  }

  /** @param {any} command */
  postMessage(command) {
    this.commands.push(command);
    // As the real one, which shows by this that it lives.
    if (command.type === "open") navigator.locks?.request(command.lock, () => new Promise(() => {}));
  }

  /** @param {object[]} events */
  say(...events) {
    this.onmessage({ data: { events } });
  }

  /** @param {object} [ready] the model is loaded */
  load(ready = READY) {
    this.say({ type: "opened", source: SOURCE, reasons: ["Kept in memory."] }, ready);
  }

  /** @param {string} [message] it dies */
  crash(message = "boom") {
    this.onerror({ message, preventDefault() {} });
  }

  terminate() {
    this.isTerminated = true;
  }
}

/**
 * A session that is ready, its workers, the first of them, and what the application was told of progress.
 * @param {{choice?: object, ready?: object}} [gpu]
 */
export async function openSession({ choice = CHOICE, ready = READY } = {}) {
  globalThis.Worker = /** @type {any} */ (FakeWorker);
  started = [];
  const progress = /** @type {object[]} */ ([]);
  const plan = {
    files: {},
    store: {},
    load: {},
    gpu: { layers: "auto", selfTest: "auto" },
    artifactsUrl: "",
    onProgress: (event) => progress.push(event),
  };
  const opening = LocalSession.open("model", plan, choice, new AbortController().signal);
  const [worker] = started;
  worker.say({ type: "progress", phase: "download", file: "model", loaded: 1, total: 2 });
  worker.load(ready);
  return { session: await opening, worker, workers: started, progress };
}

/** Starts a request and keeps what its feed is told. */
export function start(session, request) {
  const told = /** @type {any[]} */ ([]);
  const feed = Object.fromEntries(
    ["accept", "push", "done", "fail"].map((name) => [name, (value) => told.push([name, value])]),
  );
  return { told, cancel: session.start(request, feed) };
}

/** @param {FakeWorker} worker */
export function sent(worker) {
  return worker.commands.filter(({ type }) => type === "submit").map(({ request }) => request);
}
