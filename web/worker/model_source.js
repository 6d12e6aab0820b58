// Turns the model source of an open command into bytes that can be mounted.
//
// Counterpart: engine_port.js, which mounts the Blob. Not a reader of models: of a local file only the
// first bytes are looked at here.

import { HeadraceError } from "../errors.js";
import { download } from "../models/download.js";
import { SNIFF_BYTES, requireGguf } from "../models/gguf.js";

/** @import { ModelSource } from "./protocol.js" */

/**
 * @param {ModelSource} source
 * @param {(loaded: number, total: number | null) => void} onProgress called while a URL is downloaded
 * @returns {Promise<{blob: Blob, name: string}>}
 * @throws {HeadraceError} model_invalid, or as `download` does
 */
export async function openModelSource(source, onProgress) {
  if (source.kind === "url") {
    const name = new URL(source.url).pathname.split("/").pop() ?? "";
    return { blob: await download(source.url, { onProgress }), name };
  }
  const head = await source.blob
    .slice(0, SNIFF_BYTES)
    .arrayBuffer()
    .catch((error) => {
      throw HeadraceError.from(error, "model_not_found", `${source.name} could not be read`);
    });
  requireGguf(new Uint8Array(head), source.name);
  return { blob: source.blob, name: source.name };
}
