// Objects by small positive numbers, for code that can only hold numbers.
//
// Counterpart: gpu_binding.js, whose objects the engine holds. Not a cache: whoever gets a handle releases it.

/** Numbers that were released are used again. */
export class HandleTable {
  /** @type {any[]} */ #objects = [null];
  /** @type {number[]} */ #free = [];

  /** @param {object} object */
  add(object) {
    const handle = this.#free.pop() ?? this.#objects.length;
    this.#objects[handle] = object;
    return handle;
  }

  /**
   * @param {number} handle
   * @returns {any}
   */
  get(handle) {
    const object = this.#objects[handle];
    if (!object) throw new Error(`there is no GPU object ${handle}`);
    return object;
  }

  /** @param {number} handle */
  release(handle) {
    this.get(handle);
    this.#objects[handle] = null;
    this.#free.push(handle);
  }

  /** How many are alive. */
  get size() {
    return this.#objects.length - 1 - this.#free.length;
  }
}
