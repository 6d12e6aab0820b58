// Turns the model sources of an open command into files that can be mounted.
//
// Counterpart: engine_port.js, which mounts them. Not a reader of models: of a local file only the
// first bytes are looked at here.

import { HeadraceError } from "../errors.js";
import { openBlob } from "../models/blob_file.js";
import { download } from "../models/download.js";
import { SNIFF_BYTES, requireGguf } from "../models/gguf.js";

/** @import { ReadableFile } from "../models/types.js" */
/** @import { ModelFiles, ModelSource, StorageKind } from "./protocol.js" */

/**
 * A model's files and where their bytes lie.
 * @typedef {{kind: StorageKind, files: {name: string, file: ReadableFile}[]}} OpenModel
 */

/**
 * One file after the other.
 * @param {ModelFiles<ModelSource>} files
 * @param {(file: string, loaded: number, total: number | null) => void} onProgress called while `file`, as
 *   Progress names it, is downloaded
 * @returns {Promise<ModelFiles<OpenModel>>}
 * @throws {HeadraceError} as `openModelSource` does
 */
export async function openModelFiles({ model, draftModel, adapters = [] }, onProgress) {
  /** @type {(source: ModelSource, file: string) => Promise<OpenModel>} */
  const open = (source, file) => openModelSource(source, (loaded, total) => onProgress(file, loaded, total));

  /** @type {ModelFiles<OpenModel>} */
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
 * @returns {Promise<OpenModel>}
 * @throws {HeadraceError} model_invalid, or as `download` does
 */
export async function openModelSource(source, onProgress) {
  if (source.kind === "url") {
    const name = new URL(source.url).pathname.split("/").pop() ?? "";
    return { kind: "memory", files: [{ name, file: openBlob(await download(source.url, { onProgress })) }] };
  }
  const head = await source.blob
    .slice(0, SNIFF_BYTES)
    .arrayBuffer()
    .catch((error) => {
      throw HeadraceError.from(error, "model_not_found", `${source.name} could not be read`);
    });
  requireGguf(new Uint8Array(head), source.name);
  return { kind: "file", files: [{ name: source.name, file: openBlob(source.blob) }] };
}
