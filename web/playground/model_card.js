// One kept model on the page of models: what is known of it, and what can be done with it.
//
// Counterpart: models.js, which has the list. Changes nothing by itself.

import { make, megabytes } from "./page.js";

/** @import { StoredModel } from "../models/types.js" */

/**
 * @typedef {object} CardActions
 * @property {(model: StoredModel) => Promise<void>} pin or no longer
 * @property {(model: StoredModel, card: ModelCard) => Promise<void>} verify
 * @property {(model: StoredModel) => Promise<void>} save
 * @property {(model: StoredModel) => Promise<void>} remove
 */

export class ModelCard {
  #model;
  #title = make("h3");
  #facts = make("dl");
  #note = make("p", { hidden: true });
  #bar = make("progress", { max: 1, hidden: true });
  #buttons;

  /**
   * @param {StoredModel} model
   * @param {CardActions} actions
   */
  constructor(model, actions) {
    this.#model = model;
    this.#buttons = {
      pin: this.#button("Pin", () => actions.pin(this.#model)),
      verify: this.#button("Verify", () => actions.verify(this.#model, this)),
      save: this.#button("Export", () => actions.save(this.#model)),
      remove: this.#button("Delete", () => actions.remove(this.#model)),
    };
    const chat = make("a", { className: "button", href: `/?model=${model.id}` }, "Chat");
    const row = make("div", { className: "row" }, chat, ...Object.values(this.#buttons));
    this.element = make("li", {}, this.#title, this.#facts, this.#bar, this.#note, row);
    this.update(model);
  }

  /** @param {StoredModel} model */
  update(model) {
    this.#model = model;
    const { name, size, license, architecture, sources, files, usedAt, pinned, inUse } = model;
    this.#title.textContent = name;
    this.element.setAttribute("aria-label", name);
    const facts = {
      Size: megabytes(size) + (files.length > 1 ? `, in ${files.length} files` : ""),
      Kind: architecture ?? "not said",
      Licence: license ?? "not said",
      Source: sources.map(({ display }) => display).join(", ") || "a file of yours",
      "Last use": new Date(usedAt).toLocaleString() + (inUse ? ", and in use now" : ""),
    };
    this.#facts.replaceChildren(
      ...Object.entries(facts).flatMap(([term, fact]) => [make("dt", {}, term), make("dd", {}, fact)]),
    );
    this.#buttons.pin.setAttribute("aria-pressed", String(pinned));
    this.#buttons.pin.title = "A pinned model is never deleted to make room";
    for (const button of Object.values(this.#buttons))
      button.setAttribute("aria-label", `${button.textContent}: ${name}`);
  }

  /** @param {string} text */
  note(text) {
    this.#note.textContent = text;
    this.#note.hidden = text === "";
  }

  /** @param {number | null} fraction null takes the bar away */
  progress(fraction) {
    this.#bar.hidden = fraction === null;
    this.#bar.value = fraction ?? 0;
    this.#bar.setAttribute("aria-label", `Checking ${this.#model.name}`);
  }

  /**
   * @param {string} label
   * @param {() => Promise<void>} action
   */
  #button(label, action) {
    const button = make("button", { type: "button" }, label);
    button.onclick = async () => {
      // Not `disabled`, which would take the focus away.
      if (button.getAttribute("aria-disabled") === "true") return;
      button.setAttribute("aria-disabled", "true");
      await action().finally(() => button.removeAttribute("aria-disabled"));
    };
    return button;
  }
}
