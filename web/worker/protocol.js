// Everything that travels between the page and the worker, as tagged unions. Types only, no code.
//
// Counterparts: endpoints/local_session.js sends commands and reads messages, engine_worker.js the reverse.
// The shapes of engine events are the wire format of native/include/headrace.h, told in ARCHITECTURE.md.
// Not a request-and-reply protocol: commands go down, events come up, and only `id` ties them together.

/** @import { GenerationOptions, LoadOptions } from "headrace/declarations" */
/** @import { WireError } from "../errors.js" */

// --- Commands: page to worker -------------------------------------------------------------------------

/**
 * Where a model's bytes come from. A URL is absolute; a blob's name is only shown, never opened.
 * @typedef {{kind: "url", url: string} | {kind: "blob", blob: Blob, name: string}} ModelSource
 */

/**
 * The first command, and sent once. `artifactsUrl` is the folder of manifest.json. The worker holds the
 * Web Lock `lock` for as long as it lives, from before its first message on.
 * @typedef {{type: "open", artifactsUrl: string, artifact: "st" | "mt", threads: number,
 *   model: ModelSource, options: LoadOptions, lock: string}} OpenCommand
 */

/** @typedef {{role: string, content: string}} ChatMessage */

/**
 * A request for the engine. `id` is a positive integer, never reused on the same endpoint.
 * @typedef {{id: number, options: GenerationOptions} &
 *   ({operation: "query", prompt: string} | {operation: "chat", messages: ChatMessage[]})} EngineRequest
 */

/**
 * A submitted request is an EngineRequest as JSON: what cannot be written as JSON is refused in the page,
 * under the run it belongs to.
 * @typedef {OpenCommand
 *   | {type: "submit", request: string}
 *   | {type: "cancel", id: number}
 *   | {type: "close"}} Command
 */

// --- Events: worker to page ---------------------------------------------------------------------------

/**
 * `download` counts bytes (total null when the server does not tell), `start` compiling and starting the
 * engine, `load` the engine reading the model; the last two run from 0 to 1 of 1.
 * @typedef {{phase: "download" | "start" | "load", loaded: number, total: number | null}} Progress
 */

/**
 * @typedef {{name: string, architecture: string, parameters: number, bytes: number, vocabulary: number,
 *   trainedContext: number, chatTemplate: boolean}} ModelFacts
 */

/**
 * @typedef {{type: "ready", model: ModelFacts, options: Required<LoadOptions>, backend: string,
 *   artifact: string, loadMs: number}} ReadyEvent
 */

/** @typedef {{options: Required<GenerationOptions>, promptTokens: number}} Acceptance */
/** @typedef {{text: string, tokenIds: number[]}} TokenBatch */
/** @typedef {{inputTokens: number, outputTokens: number, cachedTokens: number}} Usage */

/**
 * Times in milliseconds; 0 for what there was too little of to measure.
 * @typedef {{queueMs: number, prefillMs: number, ttftMs: number, totalMs: number,
 *   prefillTokensPerSecond: number, decodeTokensPerSecond: number, itlMs: {p50: number, p95: number},
 *   backend: string, artifact: string, threads: number}} Stats
 */

/**
 * @typedef {{text: string, tokenIds: number[], finishReason: "stop" | "length" | "cancelled",
 *   usage: Usage, stats: Stats}} EngineResult
 */

/**
 * `engine_failed` and `closed` are final.
 * @typedef {ReadyEvent
 *   | {type: "accepted", id: number} & Acceptance
 *   | {type: "tokens", id: number} & TokenBatch
 *   | {type: "done", id: number, result: EngineResult}
 *   | {type: "failed", id: number, error: WireError}
 *   | {type: "engine_failed", error: WireError}
 *   | {type: "progress"} & Progress
 *   | {type: "closed"}} WorkerEvent
 */

/** The events of one tick. @typedef {{events: WorkerEvent[]}} WorkerMessage */

export {};
