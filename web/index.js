// What an application imports. Everything else in this folder may change without notice.

/** @typedef {import("./backend_choice.js").BackendChoice} BackendChoice */
/** @typedef {import("./client.js").ClientOptions} ClientOptions */
/** @typedef {import("./client.js").EndpointRef} EndpointRef */
/** @typedef {import("./client.js").EmbedRunOptions} EmbedRunOptions */
/** @typedef {import("./client.js").RunOptions} RunOptions */
/** @typedef {import("./endpoints/endpoint.js").Capabilities} Capabilities */
/** @typedef {import("./endpoints/endpoint.js").EndpointSession} EndpointSession */
/** @typedef {import("./endpoints/local.js").LocalAdapter} LocalAdapter */
/** @typedef {import("./endpoints/local.js").LocalOptions} LocalOptions */
/** @typedef {import("./environment.js").Environment} Environment */
/** @typedef {import("./gpu_adapter.js").AdapterFacts} AdapterFacts */
/** @typedef {import("./models/model_input.js").ModelLike} ModelLike */
/** @typedef {import("./models/store_client.js").ClientModels} ClientModels */
/** @typedef {import("./models/store_client.js").DownloadOptions} DownloadOptions */
/** @typedef {import("./models/store_client.js").ImportOptions} ImportOptions */
/** @typedef {import("./models/types.js").Manifest} Manifest */
/** @typedef {import("./models/types.js").StoredModel} StoredModel */
/** @typedef {import("./models/types.js").StoreProgress} StoreProgress */
/** @typedef {import("./run.js").EmbedResult} EmbedResult */
/** @typedef {import("./run.js").EmbedRun} EmbedRun */
/** @typedef {import("./run.js").Result} Result */
/** @typedef {import("./run.js").Run} Run */
/** @typedef {import("./worker/protocol.js").AuditedOp} AuditedOp */
/** @typedef {import("./worker/protocol.js").ChatMessage} ChatMessage */
/** @typedef {import("./worker/protocol.js").GpuUse} GpuUse */
/** @typedef {import("./worker/protocol.js").Metrics} Metrics */
/** @typedef {import("./worker/protocol.js").Progress} Progress */
/** @typedef {import("./worker/protocol.js").TokenBatch} TokenBatch */
/** @typedef {import("./worker/protocol.js").TokenLogprob} TokenLogprob */
/** @typedef {import("./worker/protocol.js").ToolCall} ToolCall */
/** @typedef {import("./worker/protocol.js").ToolCallDelta} ToolCallDelta */

export { HeadraceClient } from "./client.js";
export { Endpoint } from "./endpoints/endpoint.js";
export { measureEnvironment } from "./environment.js";
export { HeadraceError } from "./errors.js";
export { probeAdapter } from "./gpu_adapter.js";
