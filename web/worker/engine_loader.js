// Loads a model in one instance of the engine after another, until one has it.
//
// Counterparts: backend_attempts.js decides what is tried next, engine_port.js is one instance. After a failure an
// engine can only be freed, so the next attempt has an instance, and a GPU device, of its own.

import { HeadraceError } from "../errors.js";
import { EnginePort } from "./engine_port.js";
import { GpuBinding } from "./gpu_binding.js";

/** @import { ReadableFile } from "../models/types.js" */
/** @import { ArtifactAddresses } from "./artifact.js" */
/** @import { LoadAttempt } from "./backend_attempts.js" */
/** @import { OpenedModel } from "./model_source.js" */
/** @import { EngineReady, GpuCommand, ModelFiles } from "./protocol.js" */

/**
 * An instance; `gpu` is its way to the GPU, null for one that has none.
 * @typedef {{port: EnginePort, gpu: GpuBinding | null}} Engine
 */

export class EngineLoader {
  #addresses;
  #threads;
  #gpu;
  /** Null while there is none. @type {Engine | null} */ #engine;
  #isUsed = false;
  #read = { bytesRead: 0, readMs: 0 };

  /**
   * Starts an instance, for the GPU if there is one, so that a wrong build is told before anything is fetched.
   * @param {ArtifactAddresses} addresses
   * @param {number} threads threads that compute, the caller's included
   * @param {GpuCommand | null} gpu
   * @returns {Promise<EngineLoader>}
   * @throws {HeadraceError} artifact_missing, version_mismatch, out_of_memory, engine_aborted
   */
  static async start(addresses, threads, gpu) {
    return new EngineLoader(addresses, threads, gpu, await startEngine(addresses, threads, gpu));
  }

  /**
   * @param {ArtifactAddresses} addresses
   * @param {number} threads
   * @param {GpuCommand | null} gpu
   * @param {Engine} engine
   */
  constructor(addresses, threads, gpu, engine) {
    this.#addresses = addresses;
    this.#threads = threads;
    this.#gpu = gpu;
    this.#engine = engine;
  }

  /** The instance of the latest attempt. */
  get port() {
    if (!this.#engine) throw new HeadraceError("internal", "no instance of the engine is running");
    return this.#engine.port;
  }

  /** What all attempts have read of the files. */
  get storageCounters() {
    return { ...this.#read };
  }

  /**
   * Makes one attempt.
   * @param {ModelFiles<OpenedModel>} files stay open
   * @param {LoadAttempt} attempt
   * @param {(fraction: number) => void} onProgress from 0 to 1
   * @returns {Promise<EngineReady>}
   * @throws {HeadraceError} why it failed
   */
  async load(files, { options, provenOps }, onProgress) {
    await this.#prepare(options.backend === "webgpu");
    const { port } = this;
    const paths = mountFiles(port, files);
    try {
      await port.load(paths, { ...options, threads: this.#threads }, onProgress, provenOps);
    } finally {
      port.unmount();
      const { bytesRead, readMs } = port.storageCounters();
      this.#read.bytesRead += bytesRead;
      this.#read.readMs += readMs;
    }
    for (const event of port.takeEvents()) {
      if (event.type === "ready") return event;
      if (event.type === "engine_failed") throw HeadraceError.fromWire(event.error);
    }
    throw new HeadraceError("internal", "the engine said nothing of a load");
  }

  /**
   * Sees to it that there is an instance that nothing was loaded in.
   * @param {boolean} onGpu
   */
  async #prepare(onGpu) {
    const engine = this.#engine;
    if (!engine || this.#isUsed || (engine.gpu !== null) !== onGpu) {
      // Whatever fails from here on, this one is not freed again.
      this.#engine = null;
      await engine?.port.discard();
      engine?.gpu?.destroy();
      this.#engine = await startEngine(this.#addresses, this.#threads, onGpu ? this.#gpu : null);
    }
    this.#isUsed = true;
  }
}

/**
 * @param {ArtifactAddresses} addresses
 * @param {number} threads
 * @param {GpuCommand | null} command
 * @returns {Promise<Engine>}
 */
async function startEngine(addresses, threads, command) {
  const gpu = command && new GpuBinding(navigator.gpu, command.powerPreference);
  return { port: await EnginePort.start(addresses, threads, gpu), gpu };
}

/**
 * @param {EnginePort} port
 * @param {ModelFiles<OpenedModel>} files
 * @returns {ModelFiles<string[]>} where the engine finds them
 */
function mountFiles(port, { model, draftModel, adapters = [] }) {
  /** @param {OpenedModel} opened */
  const mount = ({ files }) => port.mount(files.map(({ name, file }) => ({ name, file: keptOpen(file) })));
  return {
    model: mount(model),
    ...(draftModel && { draftModel: mount(draftModel) }),
    adapters: adapters.map((adapter) => ({ ...adapter, model: mount(adapter.model) })),
  };
}

/**
 * A port closes what was mounted; the next attempt needs the file again.
 * @param {ReadableFile} file
 * @returns {ReadableFile}
 */
function keptOpen(file) {
  return { size: file.size, read: (target, at) => file.read(target, at), close() {} };
}
