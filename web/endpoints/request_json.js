// Writes a request down as the JSON that the engine reads, and refuses what has no form there.
//
// Counterpart: native/abi/requests_json.cpp, which reads it and checks names, types and ranges. A request that
// the engine could not read as JSON would end the whole engine: this file sees to it that there is none.

import { HeadraceError } from "../errors.js";

/** @import { EngineRequest, Replay } from "../worker/protocol.js" */

/** Levels of a request, beyond any that makes sense: the engine's parser calls itself for each. */
const MAX_DEPTH = 256;

/**
 * @param {EngineRequest} request
 * @returns {string} one line; the properties of a JSON schema keep their order
 * @throws {HeadraceError} invalid_option or invalid_request, for what JSON has no form for: a function, a
 *   BigInt, a circle, endless depth
 */
export function writeRequest(request) {
  refuseUnwritable(request.options ?? {});
  try {
    const json = replaceHalfCharacters(JSON.stringify(request));
    requirePlain(request, MAX_DEPTH);
    return json;
  } catch (error) {
    const [reason] = String(error instanceof Error ? error.message : error).split("\n");
    throw new HeadraceError("invalid_request", `the request cannot be written as JSON: ${reason}`, {
      cause: error,
    });
  }
}

/**
 * @param {string} request that was written before; read and written again, a schema's properties could change
 *   their order
 * @param {Replay} replay
 * @returns {string} the request to go on with
 */
export function writeReplay(request, replay) {
  return `${request.slice(0, -1)},"replay":${JSON.stringify(replay)}}`;
}

/**
 * The option itself can be named.
 * @param {object} options
 */
function refuseUnwritable(options) {
  for (const [option, value] of Object.entries(options)) {
    if (!["function", "symbol", "bigint"].includes(typeof value)) continue;
    throw new HeadraceError("invalid_option", `the option "${option}" cannot be a ${typeof value}`, {
      detail: { option },
    });
  }
}

/**
 * @param {object} value without a circle in it
 * @param {number} levels that it may have
 */
function requirePlain(value, levels) {
  if (levels === 0) throw new RangeError(`it is nested deeper than ${MAX_DEPTH} levels`);
  for (const item of Object.values(value)) {
    const type = typeof item;
    if (type === "function" || type === "symbol") throw new TypeError(`there is a ${type} in it`);
    if (type === "object" && item !== null) requirePlain(item, levels - 1);
  }
}

/**
 * Half a surrogate pair, as cutting a text by length leaves, is no character: it becomes U+FFFD. In JSON it is
 * the only thing that is escaped as \ud800 to \udfff, in names of properties as in texts.
 * @param {string} json
 */
function replaceHalfCharacters(json) {
  // Every escape is matched, so that a backslash of the text is not taken for the beginning of one.
  return json.replace(/\\(?:ud[89a-f]..|.)/g, (escape) => (escape.startsWith("\\ud") ? "\ufffd" : escape));
}
