// The client: endpoints by name, and the operations on them.
//
// Counterparts: endpoints/endpoint.js (the interface of an endpoint), run.js (what an operation gives).
// Knows no kind of endpoint, and never chooses one: the application does.

import { HeadraceError } from "./errors.js";
import { Run } from "./run.js";

/** @import { GenerationOptions } from "headrace/declarations" */
/** @import { Capabilities, EndpointDescription } from "./endpoints/endpoint.js" */
/** @import { EndpointSession, Operation } from "./endpoints/endpoint.js" */
/** @import { ChatMessage } from "./worker/protocol.js" */

/**
 * What `add` gave, or its id.
 * @typedef {string | {readonly id: string}} EndpointRef
 */

/**
 * Generation options, and a signal that cancels the run. Unknown names are refused by the endpoint.
 * @typedef {GenerationOptions & {signal?: AbortSignal}} RunOptions
 */

/** An endpoint that is being opened (`session` is null) or open. @typedef {object} Entry
 * @property {AbortController} abort
 * @property {Promise<EndpointSession>} opening
 * @property {EndpointSession | null} session
 */

export class HeadraceClient {
  /** @type {Map<string, Entry>} */ #entries = new Map();
  #closed = false;

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
    /** @type {Entry} */
    const entry = { abort, opening: endpoint.open(id, abort.signal), session: null };
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
   * Removes every endpoint; afterwards nothing can be added.
   * @returns {Promise<void>}
   */
  async close() {
    this.#closed = true;
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
    return this.#run(ref, "query", prompt, options);
  }

  /**
   * Answers a conversation, with the model's own template.
   * @param {EndpointRef} ref
   * @param {ChatMessage[]} messages
   * @param {RunOptions} [options]
   * @returns {Run}
   */
  chat(ref, messages, options) {
    return this.#run(ref, "chat", messages, options);
  }

  /**
   * Turns texts into vectors. No kind of endpoint can do this yet: unsupported_operation.
   * @param {EndpointRef} ref
   * @param {string | string[]} input
   * @param {RunOptions} [options]
   * @returns {Run}
   */
  embed(ref, input, options) {
    return this.#run(ref, "embed", input, options);
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
   * @param {EndpointRef} ref
   * @param {Operation} operation
   * @param {unknown} input
   * @param {RunOptions} [options]
   */
  #run(ref, operation, input, options = {}) {
    const refusal = refuseOptions(options);
    const { signal, ...generation } = refusal ? /** @type {RunOptions} */ ({}) : options;
    return new Run((feed) => {
      try {
        if (refusal) throw refusal;
        return this.#session(ref).start(operation, input, generation, feed);
      } catch (error) {
        feed.fail(HeadraceError.from(error, "internal", `${operation} could not be started`));
        return () => {};
      }
    }, signal);
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
 * What cannot be left to the endpoint, which sees neither the signal nor anything but an object.
 * @param {RunOptions} options
 * @returns {HeadraceError | null}
 */
function refuseOptions(options) {
  if (typeof options !== "object" || options === null || Array.isArray(options))
    return invalidOption("options", "the options of an operation must be an object");
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal))
    return invalidOption("signal", 'the option "signal" must be an AbortSignal');
  return null;
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
