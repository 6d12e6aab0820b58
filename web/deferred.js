// A promise together with the functions that settle it. Not exported to applications.

/**
 * A promise with its handles; Promise.withResolvers is newer than the browsers supported here.
 * @template [T=void]
 * @returns {{promise: Promise<T>, resolve: (value: T) => void, reject: (reason: unknown) => void}}
 */
export function deferred() {
  /** @type {(value: T) => void} */ let resolve = () => {};
  /** @type {(reason: unknown) => void} */ let reject = () => {};
  /** @type {Promise<T>} */
  const promise = new Promise((resolveIt, rejectIt) => {
    resolve = resolveIt;
    reject = rejectIt;
  });
  return { promise, resolve, reject };
}
