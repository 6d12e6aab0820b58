// Everything that travels between the page and the worker, as tagged unions. Types only, no code.
//
// Counterparts: endpoints/worker_link.js sends commands and reads messages, engine_worker.js the reverse.
// The shapes of engine events are the wire format of native/include/headrace.h, told in ARCHITECTURE.md.
// Not a request-and-reply protocol: commands go down, events come up, and only `id` ties them together.

/** @import { EmbedOptions, FinishReason, GenerationOptions } from "headrace/declarations" */
/** @import { LoadOptions, Operation, TokenizeOptions } from "headrace/declarations" */
/** @import { WireError } from "../errors.js" */
/** @import { AdapterFacts, PowerPreference } from "../gpu_adapter.js" */
/** @import { ModelInput } from "../models/store_protocol.js" */
/** @import { StoreProgress } from "../models/types.js" */

// --- Commands: page to worker -------------------------------------------------------------------------

/**
 * `T` says where a model lies: a ModelInput on its way to the worker, the paths of its files for the engine.
 * @template T
 * @typedef {{model: T, draftModel?: T, adapters?: {name: string, model: T, scale?: number}[]}} ModelFiles
 */

/**
 * What is kept: "auto" what has an address, "keep" local files too, "memory" nothing. `limitBytes` of all
 * stored models, null for none; `evict` as in BringOptions.
 * @typedef {{kind: "auto" | "memory" | "keep", limitBytes: number | null, evict?: boolean,
 *   huggingFace?: string}} StoreOptions
 */

/**
 * How the GPU is used: layers on it, the output layer counted as one, and which operations are compared with
 * the CPU's (the load option gpuSelfTest).
 * @typedef {{layers: "auto" | number, selfTest: "auto" | "force" | "skip"}} GpuOptions
 */

/**
 * The adapter as the page has seen it; without `required` a GPU that fails leads to the CPU.
 * @typedef {GpuOptions & {adapter: AdapterFacts, powerPreference: PowerPreference | null,
 *   required: boolean}} GpuCommand
 */

/**
 * The first command, and sent once. `artifactsUrl` is the folder of manifest.json. The worker holds the
 * Web Lock `lock` for as long as it lives, from before its first message on. `gpu` is null on the CPU.
 * @typedef {{type: "open", artifactsUrl: string, artifact: "st" | "mt", threads: number,
 *   files: ModelFiles<ModelInput>, store: StoreOptions, options: LoadOptions, gpu: GpuCommand | null,
 *   lock: string}} OpenCommand
 */

/** @typedef {{type: "text", text: string}} TextPart */

/**
 * A call in the conversation, as OpenAI-style clients keep it; `arguments` is JSON text.
 * @typedef {{id: string, type: "function", function: {name: string, arguments: string}}} CallMessage
 */

/**
 * One turn of a conversation, in the form that OpenAI-style clients use. `role` is system, user, assistant
 * or tool. An assistant's turn may hold the calls it made, and then no content, and its reasoning; a tool's
 * turn names the call that it answers.
 * @typedef {{role: string, content?: string | TextPart[] | null, tool_calls?: CallMessage[],
 *   reasoning?: string, tool_call_id?: string, name?: string}} ChatMessage
 */

/**
 * What an endpoint is asked to do, and with what.
 * @typedef {{operation: "query", prompt: string}
 *   | {operation: "chat" | "countTokens" | "applyTemplate", messages: ChatMessage[]}
 *   | {operation: "embed", inputs: string[]}
 *   | {operation: "tokenize" | "countTokens", text: string}
 *   | {operation: "detokenize", tokenIds: number[]}
 *   | {operation: "audit" | "metrics"}} OperationInput
 */

/**
 * Input and options are checked by the engine, which knows them.
 * @typedef {OperationInput & {options?: GenerationOptions | EmbedOptions | TokenizeOptions}} OperationRequest
 */

/**
 * A request for the engine. `id` is a positive integer, never reused on the same endpoint.
 * @typedef {{id: number} & OperationRequest} EngineRequest
 */

/**
 * What was told of an answer, for an engine that goes on with it: a field of a query or a chat that is
 * submitted again, never an option of an application. `seed` is the one in force; `elapsedMs` since the
 * request was first submitted counts towards its deadline.
 * @typedef {{tokenIds: number[], text: string, reasoning: string, toolCalls: ToolCall[],
 *   logprobs?: TokenLogprob[], seed?: number, elapsedMs: number}} Replay
 */

/**
 * A submitted request is an EngineRequest as JSON: what cannot be written as JSON is refused in the page,
 * under the run it belongs to, and the properties of a JSON schema keep their order.
 * @typedef {OpenCommand
 *   | {type: "submit", request: string}
 *   | {type: "cancel", id: number}
 *   | {type: "close"}} Command
 */

// --- Events: worker to page ---------------------------------------------------------------------------

/**
 * `start` is compiling and starting the engine, `load` the engine reading the model: both run from 0 to 1 of
 * 1. The others are the store's and count bytes of one model; `file` is "model", "draftModel" or an adapter's
 * name behind "adapters.".
 * @typedef {{phase: "start" | "load", loaded: number, total: number}
 *   | {file: string} & StoreProgress} Progress
 */

/** Where an endpoint's model comes from; `modelId` is its id in the store, null for a local file.
 * @typedef {{kind: StorageKind, modelId: string | null}} ModelOrigin
 */

/**
 * @typedef {{name: string, architecture: string, parameters: number, bytes: number, vocabulary: number,
 *   trainedContext: number, chatTemplate: boolean}} ModelFacts
 */

/**
 * Bytes: of the tensors, of KV caches or recurrent states, and of what forward passes compute in; a draft
 * model's included.
 * @typedef {{modelBytes: number, contextBytes: number, computeBytes: number}} MemoryUse
 */

/**
 * Where the model's bytes lay: in the model store, in memory, or in a file of the user's, used in place.
 * @typedef {"opfs" | "memory" | "file"} StorageKind
 */

/**
 * What loading read of the models' files, and the time that it took; headers are read twice.
 * @typedef {{bytesRead: number, reads: number, readMs: number}} StorageCounters
 */

/**
 * How the GPU was compared with the CPU: operations `tested` now and `known` from before, the time that it
 * took, the worst of those tested (null without any), and the signatures of those that were tested and agree.
 * @typedef {{tested: number, known: number, ms: number, worst: {op: string, error: number} | null,
 *   unchecked: string[], proven: string[]}} GpuSelfTest
 */

/**
 * What the engine says of the GPU: its name, the layers on it and all there are, the output layer counted.
 * @typedef {{description: string, layers: number, layersTotal: number, selfTest: GpuSelfTest}} GpuUse
 */

/**
 * `operations` are those of query, chat and embed that the model is made for; `gpu` is there with the backend
 * webgpu.
 * @typedef {{type: "ready", model: ModelFacts, operations: Operation[], options: Required<LoadOptions>,
 *   memory: MemoryUse, backend: "cpu" | "webgpu", gpu?: GpuUse, artifact: string, loadMs: number}} EngineReady
 */

/**
 * The worker adds `storage`, where the bytes lay and what was read of them, `heapBytes`: the size of the
 * engine's memory, which never shrinks, so that it is the peak of loading, and `reasons`: sentences about
 * what came of the GPU.
 * @typedef {EngineReady & {storage: {kind: StorageKind, bytesRead: number, readMs: number},
 *   heapBytes: number, reasons: string[]}} ReadyEvent
 */

/**
 * The engine's answer to a request: every option with the value in force, and the length of what it was
 * given.
 * @template [Options=Required<GenerationOptions>]
 * @typedef {{options: Options, promptTokens: number}} Acceptance
 */

/**
 * A token, its text, and the natural logarithm of its probability in the model's own distribution.
 * @typedef {{tokenId: number, text: string, logprob: number}} TokenProbability
 */

/**
 * `top` are the likeliest tokens in its place, topLogprobs of them.
 * @typedef {TokenProbability & {top: TokenProbability[]}} TokenLogprob
 */

/**
 * A function that the model wants called; `arguments` is JSON text.
 * @typedef {{id: string, name: string, arguments: string}} ToolCall
 */

/**
 * What a batch adds to call number `index`: `id` and `name` come once, `arguments` piece by piece.
 * @typedef {{index: number, id?: string, name?: string, arguments: string}} ToolCallDelta
 */

/**
 * What one tick added to a run. `reasoning` and `toolCalls` are there when something was added to them,
 * `logprobs`, one for each token, when they were asked for.
 * @typedef {{text: string, tokenIds: number[], reasoning?: string, toolCalls?: ToolCallDelta[],
 *   logprobs?: TokenLogprob[]}} TokenBatch
 */

/**
 * Tokens: the prompt's, the answer's, and how many of the prompt's needed no computing.
 * @typedef {{inputTokens: number, outputTokens: number, cachedTokens: number}} Usage
 */

/**
 * Times in milliseconds; 0 for what there was too little of to measure. `cache` tells where the part of the
 * prompt came from that needed no computing: the slot of the same contextKey (live), or a snapshot in
 * memory (prefix) or in a folder (disk). `shifted` is how many tokens slid out of the context, `replayed` how
 * many of the answer were generated before the engine was restarted: times and rates are of what came after.
 * @typedef {{queueMs: number, prefillMs: number, ttftMs: number, totalMs: number,
 *   prefillTokensPerSecond: number, decodeTokensPerSecond: number, itlMs: {p50: number, p95: number},
 *   cache: {source: "none" | "live" | "prefix" | "disk", tokens: number},
 *   speculation: {drafted: number, accepted: number}, shifted: number, replayed: number,
 *   backend: string, artifact: string, threads: number}} Stats
 */

/**
 * What `query` and `chat` give. `toolCalls` and `reasoning` are there for a chat that may have them,
 * `logprobs` when they were asked for.
 * @typedef {{text: string, tokenIds: number[], finishReason: FinishReason, toolCalls?: ToolCall[],
 *   reasoning?: string, logprobs?: TokenLogprob[], usage: Usage, stats: Stats}} GenerationResult
 */

/**
 * @typedef {{queueMs: number, totalMs: number, tokensPerSecond: number, backend: string, artifact: string,
 *   threads: number}} EmbedStats
 */

/**
 * What `embed` gives: one vector of `dimensions` numbers for each input, in the inputs' order.
 * @typedef {{vectors: number[][], dimensions: number, usage: Usage, stats: EmbedStats}} EmbeddingResult
 */

/**
 * One kind of operation in the model's graphs: how often it comes, and what computes it.
 * @typedef {{phase: string, op: string, inputs: string, output: string, backend: string, kernel: string,
 *   count: number}} AuditedOp
 */

/**
 * What an engine has done since it was loaded. Requests: `accepted`, of these `finished`, `cancelled` and
 * `failed`; `waiting` and `running` now. `steps` are forward passes, `busyMs` the time spent in them.
 * @typedef {{accepted: number, finished: number, cancelled: number, failed: number, waiting: number,
 *   running: number, steps: number, busyMs: number, prefillTokens: number, decodeTokens: number,
 *   cachedTokens: number, draftedTokens: number, acceptedDrafts: number, shiftedTokens: number,
 *   snapshots: SnapshotMetrics, gpu?: GpuMetrics}} Metrics
 */

/**
 * What was asked of the GPU since the engine was started. `waits` are round trips, `maps` those that
 * brought data back; `sparedWaits` those that ggml asked for although the GPU had nothing to do. ggml also
 * asks for a bind group for each dispatch; `bindGroups` were made, the others found.
 * @typedef {{dispatches: number, submits: number, sparedWaits: number, bindGroups: number, waits: number,
 *   maps: number, writes: number, writtenBytes: number, readBytes: number}} GpuMetrics
 */

/**
 * @typedef {{entries: number, memoryBytes: number, diskEntries: number, diskBytes: number, hits: number,
 *   diskHits: number, misses: number, evictions: number, rejectedFiles: number,
 *   diskProblem: string}} SnapshotMetrics
 */

/**
 * The results of the operations, by their names.
 * @typedef {{query: GenerationResult, chat: GenerationResult, embed: EmbeddingResult,
 *   tokenize: {tokenIds: number[]}, detokenize: {text: string}, countTokens: {tokens: number},
 *   applyTemplate: {prompt: string}, audit: {ops: AuditedOp[]}, metrics: Metrics}} Results
 */

/**
 * `opened` says where the model lies and why, before it is loaded. `engine_failed` and `closed` are final.
 * @typedef {ReadyEvent
 *   | {type: "accepted", id: number} & Acceptance<Required<GenerationOptions> | Required<EmbedOptions>>
 *   | {type: "tokens", id: number} & TokenBatch
 *   | {type: "done", id: number, result: Results[Operation]}
 *   | {type: "failed", id: number, error: WireError}
 *   | {type: "engine_failed", error: WireError}
 *   | {type: "progress"} & Progress
 *   | {type: "opened", source: ModelOrigin, reasons: string[]}
 *   | {type: "closed"}} WorkerEvent
 */

/** The events of one tick. @typedef {{events: WorkerEvent[]}} WorkerMessage */

export {};
