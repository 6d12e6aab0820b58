// What the playground's pages share: finding elements, figures for people, sentences about errors.
//
// Counterparts: playground.js, models.js. No part of the library.

import { HeadraceError } from "../index.js";

/** @template {HTMLElement} T @param {string} id @param {new () => T} kind @returns {T} */
export function element(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new TypeError(`#${id} is missing from the page`);
  return found;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Partial<HTMLElementTagNameMap[K]>} properties
 * @param {(Node | string)[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** @param {number} bytes */
export function megabytes(bytes) {
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** @import { StoreProgress } from "../models/types.js" */

const DOING = {
  wait: "Another tab is at it: ",
  download: "Downloading: ",
  import: "Copying: ",
  verify: "Checking: ",
};

/** @param {StoreProgress} progress */
export function progressSentence({ phase, loaded, total, bytesPerSecond, secondsLeft }) {
  const size = total ? ` of ${megabytes(total)}` : ", of unknown size";
  const parts = [megabytes(loaded) + size];
  if (bytesPerSecond !== null) parts.push(`${megabytes(bytesPerSecond)}/s`);
  if (secondsLeft !== null) parts.push(`${duration(secondsLeft)} left`);
  return DOING[phase] + parts.join(" · ");
}

/** @param {unknown} error */
export function sentence(error) {
  const { code, message } = HeadraceError.from(error, "internal", "the page failed");
  return `Error: ${message} (${code})`;
}
