// Finds the files of one build of the engine: manifest.json → addresses of glue and wasm.
//
// Counterpart: build_tools writes the manifest. Not a loader: engine_port.js starts what is found here.

import { HeadraceError } from "../errors.js";

/**
 * @typedef {{abiVersion: number, build: string,
 *   artifacts: Record<string, {glue: string, wasm: string, bytes: number}>}} Manifest
 * glue and wasm are paths from the manifest's folder; the build's name is part of them
 */

/** `glue` and `wasm` are absolute. @typedef {{build: string, glue: string, wasm: string}} ArtifactAddresses */

/**
 * @param {string} artifactsUrl the folder of manifest.json, with a slash at its end
 * @param {"st" | "mt"} artifact
 * @param {number} abiVersion the one this JavaScript was written for
 * @returns {Promise<ArtifactAddresses>}
 * @throws {HeadraceError} artifact_missing, version_mismatch
 */
export async function findArtifact(artifactsUrl, artifact, abiVersion) {
  const manifest = await readManifest(new URL("manifest.json", artifactsUrl).href);
  if (manifest.abiVersion !== abiVersion) throw versionMismatch(manifest.abiVersion, abiVersion);

  const files = manifest.artifacts?.[artifact];
  if (!files) {
    throw new HeadraceError(
      "artifact_missing",
      `the build at ${artifactsUrl} has no artifact "${artifact}"`,
      {
        detail: { artifactsUrl, artifact },
      },
    );
  }
  return {
    build: manifest.build,
    glue: new URL(files.glue, artifactsUrl).href,
    wasm: new URL(files.wasm, artifactsUrl).href,
  };
}

/**
 * @param {unknown} found
 * @param {number} expected
 */
export function versionMismatch(found, expected) {
  return new HeadraceError(
    "version_mismatch",
    `this page's JavaScript needs version ${expected} of the engine, not ${found}: reload the page`,
    { detail: { found, expected } },
  );
}

/**
 * @param {string} url
 * @returns {Promise<Manifest>}
 */
async function readManifest(url) {
  try {
    // The artifacts may be cached for ever because this file says which ones are current.
    const response = await fetch(url, { cache: "no-cache" });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    return await response.json();
  } catch (error) {
    throw HeadraceError.from(error, "artifact_missing", `the engine was not found at ${url}`);
  }
}
