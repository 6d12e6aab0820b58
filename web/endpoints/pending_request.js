// A request that is not finished: what was asked, and what its run was told of the answer so far.
//
// Counterparts: local_session.js submits it, again after the engine was lost; native/engine/replay.cpp goes on
// with what is written here. Each event is told once, whichever engine it comes from.

import { writeReplay, writeRequest } from "./request_json.js";
import { HeadraceError } from "../errors.js";

/** @import { RunFeed } from "../run.js" */
/** @import { Acceptance, EngineReady, GenerationResult, OperationRequest } from "../worker/protocol.js" */
/** @import { Replay, Results, TokenBatch, TokenLogprob, ToolCall } from "../worker/protocol.js" */
/** @import { EmbedOptions, GenerationOptions, Operation } from "headrace/declarations" */

/** @typedef {Required<GenerationOptions> | Required<EmbedOptions>} OptionsInForce */

export class PendingRequest {
  /** Engines that were lost while it was theirs. */
  restarts = 0;
  isCancelled = false;
  /** The request as JSON, as it was when it was made: the application may change its objects later. */
  json;

  #operation;
  #feed;
  #begun = performance.now();
  /** @type {Acceptance<OptionsInForce> | null} */ #acceptance = null;
  #text = "";
  #reasoning = "";
  /** @type {number[]} */ #tokenIds = [];
  /** @type {ToolCall[]} */ #toolCalls = [];
  /** @type {TokenLogprob[] | null} */ #logprobs = null;

  /**
   * @param {number} id
   * @param {OperationRequest} request
   * @param {RunFeed<any, any>} feed
   * @throws {HeadraceError} see writeRequest
   */
  constructor(id, request, feed) {
    this.id = id;
    this.json = writeRequest({ id, ...request });
    this.#operation = request.operation;
    this.#feed = feed;
  }

  /** @returns {boolean} whether its answer grows by and by, so that another engine can go on with it */
  get #isGenerated() {
    return this.#operation === "query" || this.#operation === "chat";
  }

  /** @returns {string} the request as JSON for an engine that goes on with it */
  writeAgain() {
    return this.#isGenerated ? writeReplay(this.json, this.#replay()) : this.json;
  }

  /** @returns {Replay} */
  #replay() {
    const options = this.#acceptance?.options;
    return {
      tokenIds: this.#tokenIds,
      text: this.#text,
      reasoning: this.#reasoning,
      toolCalls: this.#toolCalls,
      ...(this.#logprobs && { logprobs: this.#logprobs }),
      ...(options && "seed" in options && { seed: options.seed }),
      elapsedMs: performance.now() - this.#begun,
    };
  }

  /** @param {Acceptance<OptionsInForce>} acceptance */
  accept(acceptance) {
    if (this.#acceptance) return;
    this.#acceptance = acceptance;
    this.#feed.accept(acceptance);
  }

  /** @param {TokenBatch} batch */
  push(batch) {
    this.#text += batch.text;
    this.#reasoning += batch.reasoning ?? "";
    this.#tokenIds.push(...batch.tokenIds);
    for (const { index, id = "", name = "", arguments: more } of batch.toolCalls ?? []) {
      this.#toolCalls[index] ??= { id, name, arguments: "" };
      this.#toolCalls[index].arguments += more;
    }
    if (batch.logprobs) (this.#logprobs ??= []).push(...batch.logprobs);
    this.#feed.push(batch);
  }

  /**
   * @param {Results[Operation]} result
   * @param {string} endpoint
   * @param {readonly string[]} reasons
   */
  done(result, endpoint, reasons) {
    this.#feed.done({ ...result, endpoint, requestId: this.id, reasons });
  }

  /** @param {HeadraceError} error */
  fail(error) {
    this.#feed.fail(HeadraceError.fromWire(error.toWire()));
  }

  /**
   * Ends a request that was cancelled and that no engine has, as an engine would: a stop must not wait until
   * a model is loaded.
   * @param {string} endpoint
   * @param {readonly string[]} reasons
   * @param {Pick<EngineReady, "backend" | "artifact"> & {threads: number}} ran on what it was computed
   */
  endCancelled(endpoint, reasons, ran) {
    if (this.#isGenerated) this.done(this.#cancelledResult(ran), endpoint, reasons);
    else this.fail(new HeadraceError("cancelled", "the request was cancelled before there was a result"));
  }

  /**
   * @param {Parameters<PendingRequest["endCancelled"]>[2]} ran
   * @returns {GenerationResult}
   */
  #cancelledResult({ backend, artifact, threads }) {
    const tokenIds = [...this.#tokenIds];
    const parts = this.#reasoning !== "" || this.#toolCalls.length > 0;
    return {
      text: this.#text,
      tokenIds,
      finishReason: "cancelled",
      ...(parts && { reasoning: this.#reasoning, toolCalls: this.#toolCalls.filter(isComplete) }),
      ...(this.#logprobs && { logprobs: [...this.#logprobs] }),
      usage: {
        inputTokens: this.#acceptance?.promptTokens ?? 0,
        outputTokens: tokenIds.length,
        cachedTokens: 0,
      },
      stats: {
        queueMs: 0,
        prefillMs: 0,
        ttftMs: 0,
        totalMs: performance.now() - this.#begun,
        prefillTokensPerSecond: 0,
        decodeTokensPerSecond: 0,
        itlMs: { p50: 0, p95: 0 },
        cache: { source: "none", tokens: 0 },
        speculation: { drafted: 0, accepted: 0 },
        shifted: 0,
        replayed: tokenIds.length,
        backend,
        artifact,
        threads,
      },
    };
  }
}

/** @param {ToolCall} call */
function isComplete(call) {
  try {
    const value = JSON.parse(call.arguments);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
