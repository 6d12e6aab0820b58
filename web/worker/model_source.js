// Turns the model sources of an open command into bytes that can be mounted.
//
// Counterpart: engine_port.js, which mounts the Blobs. Not a reader of models: of a local file only the
// first bytes are looked at here.

import { HeadraceError } from "../errors.js";
import { download } from "../models/download.js";
import { SNIFF_BYTES, requireGguf } from "../models/gguf.js";

/** @import { ModelFiles, ModelSource } from "./protocol.js" */

/** @typedef {{blob: Blob, name: string}} OpenFile */

/**
 * One file after the other.
 * @param {ModelFiles<ModelSource>} files
 * @param {(file: string, loaded: number, total: number | null) => void} onProgress called while `file`, as
 *   Progress names it, is downloaded
 * @returns {Promise<ModelFiles<OpenFile>>}
 * @throws {HeadraceError} as `openModelSource` does
 */
export async function openModelFiles({ model, draftModel, adapters = [] }, onProgress) {
  /** @type {(source: ModelSource, file: string) => Promise<OpenFile>} */
  const open = (source, file) => openModelSource(source, (loaded, total) => onProgress(file, loaded, total));

  /** @type {ModelFiles<OpenFile>} */
  const opened = { model: await open(model, "model") };
  if (draftModel) opened.draftModel = await open(draftModel, "draftModel");
  opened.adapters = [];
  for (const { model: source, ...adapter } of adapters) {
    opened.adapters.push({ ...adapter, model: await open(source, `adapters.${adapter.name}`) });
  }
  return opened;
}

/**
 * @param {ModelSource} source
 * @param {(loaded: number, total: number | null) => void} onProgress called while a URL is downloaded
 * @returns {Promise<OpenFile>}
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
