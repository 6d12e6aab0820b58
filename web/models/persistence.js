// Asks the browser, once, not to throw away what this origin stores. Runs in the page: workers cannot ask.
//
// Counterparts: store_client.js and endpoints/local.js call it when a model is about to be kept. Whatever the
// answer is, models are stored; the answer only says how easily a browser short of disk deletes them.

const FLAG = "headrace-persist-asked";

/** @returns {void} */
export function askToPersist() {
  try {
    if (localStorage.getItem(FLAG) !== null) return;
    localStorage.setItem(FLAG, new Date().toISOString());
    navigator.storage?.persist?.().catch(() => {});
  } catch {
    // A page whose storage is blocked keeps nothing that could persist.
  }
}

/** @returns {Promise<boolean>} whether the browser keeps what is stored until the user deletes it */
export async function isPersisted() {
  try {
    return (await navigator.storage?.persisted?.()) ?? false;
  } catch {
    return false;
  }
}
