// The client: endpoints by name, and the operations on them.
//
// Counterparts: endpoints/endpoint.js (the interface of an endpoint), run.js (what an operation gives).
// Knows no kind of endpoint, and never chooses one: the application does.

import { HeadraceError } from "./errors.js";
import { ClientModels } from "./models/store_client.js";
import { Run } from "./run.js";

/** @import { EmbedOptions, GenerationOptions, Operation } from "headrace/declarations" */
/** @import { TokenizeOptions } from "headrace/declarations" */
/** @import { Capabilities, EndpointDescription, EndpointSession } from "./endpoints/endpoint.js" */
/** @import { EmbedRun } from "./run.js" */
/** @import { AuditedOp, ChatMessage, Metrics } from "./worker/protocol.js" */
/** @import { OperationInput, Results } from "./worker/protocol.js" */

/**
 * What `add` gave, or its id.
 * @typedef {string | {readonly id: string}} EndpointRef
 */

/**
 * Generation options, and a signal that cancels the run. Unknown names are refused by the endpoint.
 * @typedef {GenerationOptions & {signal?: AbortSignal}} RunOptions
 */

/**
 * Options of embedding, and a signal that cancels the run.
 * @typedef {EmbedOptions & {signal?: AbortSignal}} EmbedRunOptions
 */

/**
 * @typedef {object} ClientOptions
 * @property {{limitBytes?: number | null}} [models] `limitBytes` of all stored models of this origin: where
 *   it is given, those that nobody uses and nobody pinned make room for new ones, the least recently used
 *   first. Default: no limit, and nothing is deleted without being asked for
 */

/** An endpoint that is being opened (`session` is null) or open. @typedef {object} Entry
 * @property {AbortController} abort
 * @property {Promise<EndpointSession>} opening
 * @property {EndpointSession | null} session
 */

export class HeadraceClient {
  /** @type {Map<string, Entry>} */ #entries = new Map();
  #closed = false;
  #models;
  #limitBytes;

  /** @param {ClientOptions} [options] */
  constructor(options = {}) {
    this.#limitBytes = limitOf(options);
    this.#models = new ClientModels({ limitBytes: this.#limitBytes });
  }

  /**
   * The models that this origin keeps. Nothing is started before the first call.
   * @returns {ClientModels}
   */
  get models() {
    return this.#models;
  }

  /**
   * Opens an endpoint under a name of the application's choice.
   * @param {string} id not in use
   * @param {EndpointDescription} endpoint see `Endpoint`
   * @returns {Promise<EndpointSession>} the reference for the operations, ready for requests
   */
  async add(id, endpoint) {
    if (this.#closed) throw new HeadraceError("engine_closed", "this client was closed");
    if (typeof id !== "string" || id === "")
      throw invalid("an endpoint's id must be a string that is not empty");
    if (this.#entries.has(id)) throw invalid(`there already is an endpoint "${id}"`, { id });
    if (typeof endpoint?.open !== "function")
      throw invalid("client.add needs an endpoint, for instance Endpoint.local(…)");

    const abort = new AbortController();
    const context = { limitBytes: this.#limitBytes, models: this.#models };
    /** @type {Entry} */
    const entry = { abort, opening: endpoint.open(id, abort.signal, context), session: null };
    this.#entries.set(id, entry);
    try {
      const session = await entry.opening;
      if (abort.signal.aborted) {
        await session.close();
        throw abort.signal.reason;
      }
      entry.session = session;
      return session;
    } catch (error) {
      if (this.#entries.get(id) === entry) this.#entries.delete(id);
      throw error;
    }
  }

  /** @returns {EndpointSession[]} the endpoints that are open, in the order they were added */
  list() {
    return [...this.#entries.values()].flatMap(({ session }) => (session ? [session] : []));
  }

  /**
   * Takes an endpoint away. Its unfinished runs, or its `add`, reject with engine_closed.
   * @param {EndpointRef} ref
   * @returns {Promise<void>} resolves when its engine has gone
   */
  async remove(ref) {
    const id = idOf(ref);
    const entry = this.#entries.get(id);
    if (!entry) throw unknownEndpoint(id);
    this.#entries.delete(id);
    if (entry.session) return entry.session.close();
    entry.abort.abort(
      new HeadraceError("engine_closed", `the endpoint "${id}" was removed while it was being added`),
    );
    await entry.opening.then(
      (session) => session.close(),
      () => {},
    );
  }

  /**
   * Removes every endpoint, and ends what `models` is doing; afterwards nothing can be added.
   * @returns {Promise<void>}
   */
  async close() {
    this.#closed = true;
    this.#models.close();
    await Promise.all([...this.#entries.keys()].map((id) => this.remove(id)));
  }

  /**
   * Continues a prompt, sent raw.
   * @param {EndpointRef} ref
   * @param {string} prompt
   * @param {RunOptions} [options]
   * @returns {Run}
   */
  query(ref, prompt, options) {
    return this.#run(ref, { operation: "query", prompt }, options);
  }

  /**
   * Answers a conversation, with the model's own template.
   *
   * What a model calls of `options.tools` is in the result's `toolCalls`, piece by piece in the batches'
   * too. To go on, add a turn `{ role: "assistant", tool_calls: [{ id, type: "function", function: { name,
   * arguments } }] }` and one `{ role: "tool", tool_call_id: id, content }` for each call.
   * @param {EndpointRef} ref
   * @param {ChatMessage[]} messages
   * @param {RunOptions} [options]
   * @returns {Run}
   */
  chat(ref, messages, options) {
    return this.#run(ref, { operation: "chat", messages }, options);
  }

  /**
   * Turns texts into vectors, one for each. There are no tokens to iterate: the response has them all.
   * @param {EndpointRef} ref
   * @param {string | string[]} input
   * @param {EmbedRunOptions} [options]
   * @returns {EmbedRun}
   */
  embed(ref, input, options) {
    const inputs = typeof input === "string" ? [input] : input;
    return this.#run(ref, { operation: "embed", inputs }, options);
  }

  /**
   * The tokens of a text.
   * @param {EndpointRef} ref
   * @param {string} text
   * @param {TokenizeOptions} [options]
   * @returns {Promise<number[]>} token ids
   */
  async tokenize(ref, text, options) {
    return (await this.#ask(ref, { operation: "tokenize", text }, options)).tokenIds;
  }

  /**
   * The text of tokens; bytes that are no whole character become U+FFFD.
   * @param {EndpointRef} ref
   * @param {number[]} tokenIds
   * @returns {Promise<string>}
   */
  async detokenize(ref, tokenIds) {
    return (await this.#ask(ref, { operation: "detokenize", tokenIds })).text;
  }

  /**
   * How many tokens a text is.
   * @overload
   * @param {EndpointRef} ref
   * @param {string} input
   * @param {TokenizeOptions} [options]
   * @returns {Promise<number>}
   */
  /**
   * How many tokens the prompt is that `chat` makes of these messages and its options, such as `tools`.
   * @overload
   * @param {EndpointRef} ref
   * @param {ChatMessage[]} input
   * @param {GenerationOptions} [options]
   * @returns {Promise<number>}
   */
  /**
   * @param {EndpointRef} ref
   * @param {string | ChatMessage[]} input
   * @param {TokenizeOptions | GenerationOptions} [options]
   * @returns {Promise<number>}
   */
  async countTokens(ref, input, options) {
    const counted = Array.isArray(input) ? { messages: input } : { text: input };
    return (await this.#ask(ref, { operation: "countTokens", ...counted }, options)).tokens;
  }

  /**
   * The prompt that `chat` makes of these messages and its options, such as `tools`.
   * @param {EndpointRef} ref
   * @param {ChatMessage[]} messages
   * @param {GenerationOptions} [options]
   * @returns {Promise<string>}
   */
  async applyTemplate(ref, messages, options) {
    return (await this.#ask(ref, { operation: "applyTemplate", messages }, options)).prompt;
  }

  /**
   * Every kind of operation in the model's graphs, with the backend and the kernel that compute it.
   * @param {EndpointRef} ref
   * @returns {Promise<AuditedOp[]>}
   */
  async audit(ref) {
    return (await this.#ask(ref, { operation: "audit" })).ops;
  }

  /**
   * What the endpoint has done since it was added.
   * @param {EndpointRef} ref
   * @returns {Promise<Metrics>}
   */
  async metrics(ref) {
    return this.#ask(ref, { operation: "metrics" });
  }

  /**
   * @param {EndpointRef} ref
   * @returns {Capabilities}
   */
  capabilities(ref) {
    return this.#session(ref).capabilities();
  }

  /**
   * Whatever goes wrong is told by the run, so that a caller has one place to look.
   * @template R, Options
   * @param {EndpointRef} ref
   * @param {OperationInput} input
   * @param {RunOptions | EmbedRunOptions} [options]
   * @returns {Run<R, Options>}
   */
  #run(ref, input, options = {}) {
    const refusal = refuseOptions(options) ?? refuseSignal(options.signal);
    const { signal, ...given } = refusal ? /** @type {RunOptions} */ ({}) : options;
    return new Run((feed) => {
      try {
        if (refusal) throw refusal;
        return this.#session(ref).start({ ...input, options: given }, feed);
      } catch (error) {
        feed.fail(HeadraceError.from(error, "internal", `${input.operation} could not be started`));
        return () => {};
      }
    }, signal);
  }

  /**
   * A question that is answered at once, and cannot be cancelled.
   * @template {Operation} Asked
   * @param {EndpointRef} ref
   * @param {OperationInput & {operation: Asked}} input
   * @param {TokenizeOptions | GenerationOptions} [options]
   * @returns {Promise<Results[Asked]>}
   */
  async #ask(ref, input, options) {
    const refusal = options === undefined ? null : refuseOptions(options);
    if (refusal) throw refusal;
    const request = options === undefined ? input : { ...input, options };
    /** @type {Run<any>} */
    const run = new Run((feed) => this.#session(ref).start(request, feed));
    const { endpoint, requestId, reasons, ...answer } = await run.response;
    return answer;
  }

  /**
   * @param {EndpointRef} ref
   * @returns {EndpointSession}
   */
  #session(ref) {
    const id = idOf(ref);
    const session = this.#entries.get(id)?.session;
    if (!session) throw unknownEndpoint(id);
    return session;
  }
}

/**
 * @param {ClientOptions} options
 * @returns {number | null}
 */
function limitOf(options) {
  const named = (/** @type {unknown} */ value) => typeof value === "object" && value !== null;
  if (!named(options)) throw invalidOption("options", "the options of a client must be an object");
  const { models = {}, ...unknown } = options;
  if (!named(models)) throw invalidOption("models", 'the option "models" must be an object');
  const { limitBytes = null, ...unknownOfModels } = models;
  const [name] = [...Object.keys(unknown), ...Object.keys(unknownOfModels).map((one) => `models.${one}`)];
  if (name !== undefined) throw invalidOption(name, `there is no option "${name}" for a client`);
  if (limitBytes === null || (Number.isSafeInteger(limitBytes) && limitBytes > 0)) return limitBytes;
  throw invalidOption("models.limitBytes", 'the option "models.limitBytes" must be a whole number of bytes');
}

/**
 * What cannot be left to the endpoint, which sees neither the signal nor anything but an object.
 * @param {unknown} options
 * @returns {HeadraceError | null}
 */
function refuseOptions(options) {
  if (typeof options === "object" && options !== null && !Array.isArray(options)) return null;
  return invalidOption("options", "the options of an operation must be an object");
}

/** @param {unknown} signal */
function refuseSignal(signal) {
  if (signal === undefined || signal instanceof AbortSignal) return null;
  return invalidOption("signal", 'the option "signal" must be an AbortSignal');
}

/**
 * @param {string} option
 * @param {string} message
 */
function invalidOption(option, message) {
  return new HeadraceError("invalid_option", message, { detail: { option } });
}

/** @param {EndpointRef} ref */
function idOf(ref) {
  return typeof ref === "string" ? ref : String(ref?.id);
}

/** @param {string} id */
function unknownEndpoint(id) {
  return new HeadraceError("endpoint_unknown", `there is no endpoint "${id}"`, { detail: { id } });
}

/**
 * @param {string} message
 * @param {Record<string, unknown>} [detail]
 */
function invalid(message, detail) {
  return new HeadraceError("invalid_request", message, { detail });
}
