// The one error class of the JavaScript side, and its wire form.
//
// Counterparts: native/engine/error.h declares the codes, headrace/errors.py is the Python twin. Runs in
// the page and in the worker. Not a place for error texts: whoever raises an error writes its sentence.

/** @import { ErrorCode } from "headrace/declarations" */

/**
 * An error as it travels between the engine, the worker and the page.
 * @typedef {{code: ErrorCode, message: string, detail: Record<string, unknown>}} WireError
 */

/**
 * Every error this library raises or rejects with. `code` is stable and meant for programs, `message` is
 * one sentence meant for people, `detail` holds the figures and names behind the sentence as plain JSON,
 * and `cause` is the foreign error underneath, where there is one.
 */
export class HeadraceError extends Error {
  /**
   * @param {ErrorCode} code
   * @param {string} message
   * @param {{detail?: Record<string, unknown>, cause?: unknown}} [more]
   */
  constructor(code, message, { detail = {}, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "HeadraceError";
    this.code = code;
    this.detail = detail;
  }

  /** @returns {WireError} the part that can be sent; `cause` stays behind */
  toWire() {
    return { code: this.code, message: this.message, detail: this.detail };
  }

  /** @param {WireError} wire */
  static fromWire({ code, message, detail }) {
    return new HeadraceError(code, message, { detail });
  }

  /**
   * A HeadraceError as it is; anything else becomes the cause of a new one.
   * @param {unknown} error
   * @param {ErrorCode} code given to a foreign error
   * @param {string} context what was being done, put before the foreign message
   */
  static from(error, code, context) {
    if (error instanceof HeadraceError) return error;
    const reason = error instanceof Error ? error.message : String(error);
    return new HeadraceError(code, reason ? `${context}: ${reason}` : context, { cause: error });
  }
}
