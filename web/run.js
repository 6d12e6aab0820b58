// One request as the application holds it: tokens as they come, the result at the end, and cancel.
//
// Counterpart: the endpoint that feeds it through a RunFeed (endpoints/local_session.js). Not a queue with
// back-pressure: batches are kept until the run is dropped, so a slow or absent reader holds up nobody.

import { deferred } from "./deferred.js";

/** @import { HeadraceError } from "./errors.js" */
/** @import { Acceptance, EmbeddingResult, GenerationResult, TokenBatch } from "./worker/protocol.js" */
/** @import { EmbedOptions, GenerationOptions } from "headrace/declarations" */

/**
 * Who answered, and why the endpoint runs on the artifact, backend and threads named in `stats`.
 * @typedef {{endpoint: string, requestId: number, reasons: readonly string[]}} Origin
 */

/** What a finished `query` or `chat` gives. @typedef {GenerationResult & Origin} Result */
/** What a finished `embed` gives. @typedef {EmbeddingResult & Origin} EmbedResult */

/**
 * What `client.embed` gives: a run without tokens to read.
 * @typedef {Run<EmbedResult, Required<EmbedOptions>>} EmbedRun
 */

/**
 * The side of a run that its endpoint holds. After `done` or `fail` every further call is ignored.
 * @template R, Options
 * @typedef {{accept: (acceptance: Acceptance<Options>) => void, push: (batch: TokenBatch) => void,
 *   done: (result: R) => void, fail: (error: HeadraceError) => void}} RunFeed
 */

/**
 * A running request; made by `client.query`, `client.chat` and `client.embed`.
 * @template [R=Result]
 * @template [Options=Required<GenerationOptions>]
 */
export class Run {
  /** @type {TokenBatch[]} */ #batches = [];
  /** @type {Acceptance<Options> | null} */ #acceptance = null;
  /** @type {HeadraceError | null} */ #error = null;
  #settled = false;
  /** Resolves, and is replaced, whenever there is something new for a reader. */
  #news = deferred();
  #cancelRequest;

  /**
   * @param {(feed: RunFeed<R, Options>) => () => void} start called once, at once, with this run's feed;
   *   returns what asks the endpoint to end the request
   * @param {AbortSignal} [signal] cancels the run, like `cancel()`
   */
  constructor(start, signal) {
    /** @type {ReturnType<typeof deferred<R>>} */
    const response = deferred();

    /**
     * The result. Rejects with a HeadraceError; a cancelled run resolves, with finishReason "cancelled",
     * unless it was to give vectors: without them it rejects, with the code cancelled.
     * @type {Promise<R>}
     */
    this.response = response.promise;

    const abort = () => this.cancel();
    const settle = () => {
      this.#settled = true;
      signal?.removeEventListener("abort", abort);
      this.#announce();
    };
    this.#cancelRequest = start({
      accept: (acceptance) => {
        if (!this.#settled) this.#acceptance = acceptance;
      },
      push: (batch) => {
        if (this.#settled) return;
        this.#batches.push(batch);
        this.#announce();
      },
      done: (result) => {
        if (this.#settled) return;
        response.resolve(result);
        settle();
      },
      fail: (error) => {
        if (this.#settled) return;
        this.#error = error;
        response.reject(error);
        settle();
      },
    });
    if (signal?.aborted) abort();
    else if (!this.#settled) signal?.addEventListener("abort", abort);
  }

  /**
   * Batches of new text, in order; joined, their texts are the result's text. Each iteration starts from
   * the first batch, throws the run's error if it has one, and cancels the run when it is left early
   * (`break`, or an exception in the loop). Not iterating at all is fine.
   * @type {AsyncIterable<TokenBatch>}
   */
  get tokens() {
    return { [Symbol.asyncIterator]: () => this.#read() };
  }

  /** The engine's answer to the request: every option in force and the prompt's length; null before it. */
  get accepted() {
    return this.#acceptance;
  }

  /** Ends the run after the current step. Harmless when repeated, or when the run has ended. */
  cancel() {
    if (!this.#settled) this.#cancelRequest();
  }

  /** @returns {AsyncGenerator<TokenBatch, void, void>} */
  async *#read() {
    // From here on the iteration reports a failure; an unread `response` must not report it again.
    this.response.catch(() => {});
    try {
      for (let next = 0; ;) {
        while (next < this.#batches.length) yield this.#batches[next++];
        if (this.#settled) break;
        await this.#news.promise;
      }
      if (this.#error) throw this.#error;
    } finally {
      this.cancel();
    }
  }

  #announce() {
    this.#news.resolve(undefined);
    this.#news = deferred();
  }
}
