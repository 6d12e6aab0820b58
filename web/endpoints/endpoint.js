// The makers of endpoints, and the interface every kind of endpoint implements.
//
// Counterpart: client.js, which knows endpoints through this interface only.

import { LocalEndpoint } from "./local.js";

/** @import { RunFeed } from "../run.js" */
/** @import { ClientModels } from "../models/store_client.js" */
/** @import { AdapterFacts } from "../gpu_adapter.js" */
/** @import { GpuUse, MemoryUse, ReadyEvent } from "../worker/protocol.js" */
/** @import { ModelFacts, ModelOrigin, OperationRequest } from "../worker/protocol.js" */
/** @import { LocalOptions } from "./local.js" */
/** @import { LoadOptions, Operation } from "headrace/declarations" */

/**
 * What an endpoint is told of the client that it is added to: its models, and how many bytes all may have.
 * @typedef {{limitBytes: number | null, models: Pick<ClientModels, "filesInMemory">}} EndpointContext
 */

/**
 * A description of an endpoint, which may be added to any number of clients. `open` starts one session;
 * when `signal` aborts before that is done, it rejects with the signal's reason.
 * @typedef {object} EndpointDescription
 * @property {(id: string, signal: AbortSignal, context?: EndpointContext) => Promise<EndpointSession>} open
 */

/**
 * What an endpoint can do, and what it runs on and why. `operations` are those of query, chat and embed that
 * its model is made for; questions about texts, the audit and the metrics every local endpoint answers.
 * @typedef {object} Capabilities
 * @property {"local"} kind
 * @property {readonly Operation[]} operations
 * @property {ModelFacts} model
 * @property {ModelOrigin} source where the model's bytes lie, and its id in the store
 * @property {Required<LoadOptions>} options every load option with the value in force
 * @property {"cpu" | "webgpu"} backend
 * @property {(GpuUse & {adapter: AdapterFacts}) | null} gpu what the GPU is, does, and was compared by; null on
 *   the CPU
 * @property {string} artifact
 * @property {number} threads
 * @property {MemoryUse} memory what the engine's parts need, in bytes
 * @property {number} heapBytes the engine's whole memory, its peak while loading included
 * @property {ReadyEvent["storage"]} storage what loading has read of the model's files, and how long that took
 * @property {readonly string[]} reasons
 */

/**
 * An endpoint in use; applications hold it as the reference that `client.add` gives.
 * @typedef {object} EndpointSession
 * @property {string} id
 * @property {string} kind
 * @property {(request: OperationRequest, feed: RunFeed<any, any>) => () => void} start begins a request,
 *   reports it to `feed` (its `done` with the operation's result and the Origin) and returns what cancels
 *   it; throws a HeadraceError when it is refused before any work
 * @property {() => Capabilities} capabilities
 * @property {() => Promise<void>} close fails what is unfinished with engine_closed and
 *   resolves when all is gone
 */

export const Endpoint = Object.freeze({
  /**
   * A model that runs in this browser, in a worker of its own.
   *
   * When that worker dies, its memory runs out or its GPU is lost, it is started again with the model from the
   * store, and unfinished runs go on behind their last token: twice at most without a request completed in
   * between. Their result's `reasons` say so, `stats.replayed` is how many tokens came before. Then a GPU that
   * "auto" has chosen is given up for the CPU; else runs reject with the error, whose `detail.restarts` tells
   * how often it was tried. While `client.add` loads nothing is tried again: it rejects.
   *
   * The page learns of a dead worker through a Web Lock; on an insecure origin (http,
   * other than localhost) browsers have none, and what is unfinished then stays so until `client.remove`,
   * or the `signal` of `client.add`, ends it: there an application needs a time limit of its own.
   * @param {LocalOptions} options
   * @returns {LocalEndpoint}
   * @throws {HeadraceError} invalid_option
   */
  local(options) {
    return new LocalEndpoint(options);
  },
});
