// One download or import on the page of models: its bar, its figures, and what can be done about it.
//
// Counterpart: models.js, which starts it. Knows nothing of the list.

import { HeadraceError } from "../index.js";
import { make, megabytes, progressSentence, sentence } from "./page.js";

/** @import { StoreProgress } from "../models/types.js" */

/**
 * @typedef {object} Work
 * @property {string} title for people
 * @property {boolean} resumes whether it can go on after it was stopped
 * @property {(options: {evict: boolean, signal: AbortSignal,
 *   onProgress: (progress: StoreProgress) => void}) => Promise<{name: string}>} run
 * @property {(name: string) => void} onDone
 * @property {(sentence: string) => void} onNews what a screen reader should say
 */

export class ModelTask {
  #work;
  #abort = new AbortController();
  #bar = make("progress", { max: 1 });
  #text = make("p", {}, "Starting…");
  #buttons = make("div", { className: "row" });

  /** @param {Work} work */
  constructor(work) {
    this.#work = work;
    this.#bar.setAttribute("aria-label", work.title);
    this.element = make("li", {}, make("h3", {}, work.title), this.#bar, this.#text, this.#buttons);
    void this.#run(false);
  }

  /** @param {boolean} evict whether other models may be deleted for it */
  async #run(evict) {
    const { title, resumes, run, onDone, onNews } = this.#work;
    this.#abort = new AbortController();
    this.#bar.hidden = false;
    this.#bar.removeAttribute("value");
    this.#text.className = "";
    this.#text.textContent = "Starting…";
    this.#offer([resumes ? "Pause" : "Cancel", () => this.#abort.abort()]);
    onNews(`${title}: started`);
    try {
      const { signal } = this.#abort;
      const { name } = await run({ evict, signal, onProgress: (progress) => this.#show(progress) });
      this.element.remove();
      onDone(name);
    } catch (error) {
      if (error instanceof HeadraceError && error.code === "cancelled") this.#stopped();
      else this.#failed(error);
    }
  }

  /** @param {StoreProgress} progress */
  #show(progress) {
    if (this.#abort.signal.aborted) return;
    const { loaded, total } = progress;
    if (total) this.#bar.value = loaded / total;
    else this.#bar.removeAttribute("value");
    this.#text.textContent = progressSentence(progress);
  }

  #stopped() {
    const { resumes, title, onNews } = this.#work;
    if (!resumes) return this.element.remove();
    this.#text.textContent = `Paused; what has come is kept. ${this.#text.textContent}`;
    this.#offer(["Resume", () => this.#run(false)], ["Dismiss", () => this.element.remove()]);
    onNews(`${title}: paused`);
  }

  /** @param {unknown} error */
  #failed(error) {
    const { resumes, title, onNews } = this.#work;
    this.#bar.hidden = true;
    this.#text.className = "failed";
    this.#text.textContent = sentence(error);
    const candidates = evictable(error);
    if (candidates.length > 0) {
      const names = candidates.map(({ name, size }) => `${name} (${megabytes(size)})`).join(", ");
      this.#text.append(` Not used for the longest time: ${names}.`);
    }
    this.#offer(
      [resumes ? "Resume" : "Try again", () => this.#run(false)],
      ...(candidates.length > 0 ? [/** @type {Offer} */ (["Make room", () => this.#run(true)])] : []),
      ["Dismiss", () => this.element.remove()],
    );
    onNews(`${title}: ${sentence(error)}`);
  }

  /** @typedef {[string, () => void]} Offer */

  /** @param {Offer[]} offers */
  #offer(...offers) {
    const focused = this.#buttons.contains(document.activeElement);
    this.#buttons.replaceChildren(
      ...offers.map(([label, onclick]) => {
        const button = make("button", { type: "button", onclick }, label);
        button.setAttribute("aria-label", `${label}: ${this.#work.title}`);
        return button;
      }),
    );
    // Whoever has pressed "Pause" by keyboard is at "Resume" now, and not at the top of the page.
    if (focused) this.#buttons.querySelector("button")?.focus();
  }
}

/**
 * @param {unknown} error
 * @returns {{name: string, size: number}[]} models that could make room
 */
function evictable(error) {
  if (!(error instanceof HeadraceError) || error.code !== "storage_full") return [];
  const { evictable: candidates } = error.detail;
  return Array.isArray(candidates) ? candidates : [];
}
