// The page of models: what this browser keeps, how much room there is, and adding more.
//
// Counterparts: models.html, models.css; model_card.js and model_task.js, its parts. An example of using the
// library, and no part of it: everything it does goes through `client.models`.

import { HeadraceClient } from "../index.js";
import { ModelCard } from "./model_card.js";
import { ModelTask } from "./model_task.js";
import { element, megabytes, sentence } from "./page.js";

/** @import { StoredModel } from "../models/types.js" */
/** @import { Work } from "./model_task.js" */

const page = {
  add: element("add", HTMLFormElement),
  address: element("address", HTMLInputElement),
  files: element("files", HTMLInputElement),
  token: element("token", HTMLInputElement),
  tasks: element("tasks", HTMLElement),
  error: element("error", HTMLElement),
  status: element("status", HTMLElement),
  room: element("room", HTMLMeterElement),
  roomText: element("room-text", HTMLElement),
  memory: element("memory", HTMLElement),
  listTitle: element("list-title", HTMLElement),
  empty: element("empty", HTMLElement),
  models: element("models", HTMLElement),
  confirm: element("confirm", HTMLDialogElement),
  confirmText: element("confirm-text", HTMLElement),
};

const { models } = new HeadraceClient();
/** @type {Map<string, ModelCard>} */ const cards = new Map();

// --- What is kept ---------------------------------------------------------------------------------------

async function refresh() {
  try {
    const [stored, usage] = await Promise.all([models.list(), models.usage()]);
    showModels(stored);
    showRoom(usage);
  } catch (error) {
    showError(error);
  }
}

/** @param {StoredModel[]} stored */
function showModels(stored) {
  page.empty.hidden = stored.length > 0;
  const ids = new Set(stored.map(({ id }) => id));
  for (const [id, card] of cards) {
    if (ids.has(id)) continue;
    if (card.element.contains(document.activeElement)) page.listTitle.focus();
    card.element.remove();
    cards.delete(id);
  }
  for (const model of stored) {
    const card = cards.get(model.id);
    if (card) card.update(model);
    else cards.set(model.id, new ModelCard(model, actions));
  }
  // Only where the order has changed: an element that is moved loses the focus.
  for (const [place, { id }] of stored.entries()) {
    const { element: wanted } = /** @type {ModelCard} */ (cards.get(id));
    const there = page.models.children[place] ?? null;
    if (there !== wanted) page.models.insertBefore(wanted, there);
  }
}

/** @param {Awaited<ReturnType<typeof models.usage>>} usage */
function showRoom({ usedBytes, quotaBytes, modelBytes, limitBytes, persisted, storage, reason }) {
  const sentences = [`Models take ${megabytes(modelBytes)}.`];
  if (quotaBytes !== null) {
    page.room.value = quotaBytes > 0 ? Math.min(usedBytes / quotaBytes, 1) : 1;
    sentences.push(`This site uses ${megabytes(usedBytes)} of the ${megabytes(quotaBytes)} that it may.`);
  }
  if (limitBytes !== null) sentences.push(`Models are limited to ${megabytes(limitBytes)}.`);
  const kept = storage === "opfs";
  if (kept) {
    sentences.push(
      persisted
        ? "The browser keeps them until they are deleted."
        : "The browser may delete them when the disk is full.",
    );
  }
  page.room.hidden = !kept || quotaBytes === null;
  page.roomText.textContent = sentences.join(" ");
  page.memory.hidden = kept;
  page.memory.textContent = kept
    ? ""
    : `Models cannot be kept in this browser: they end with this page. ${reason ? `Why: ${reason}.` : ""}`;
}

/** @type {import("./model_card.js").CardActions} */
const actions = {
  pin: (model) => changing(() => models.pin(model, !model.pinned)),
  verify: (model, card) =>
    changing(async () => {
      card.note("");
      const onProgress = (/** @type {{loaded: number, total: number | null}} */ { loaded, total }) =>
        card.progress(total ? loaded / total : 0);
      const { ok, damaged } = await models.verify(model, { onProgress }).finally(() => card.progress(null));
      const found = ok
        ? "Every byte is as it should be."
        : `Damaged: ${damaged.join(", ")}. Download it again, or delete it.`;
      card.note(found);
      tell(`${model.name}: ${found}`);
    }),
  save: (model) =>
    changing(async () => {
      for (const { name, blob } of await models.export(model)) save(name, blob);
    }),
  remove: async (model) => {
    if (!(await confirmed(`Delete ${model.name} (${megabytes(model.size)}) from this browser?`))) return;
    await changing(async () => {
      await models.delete(model, { wait: false });
      tell(`${model.name} was deleted`);
    });
  },
};

/** @param {() => Promise<unknown>} action */
async function changing(action) {
  showError(null);
  try {
    await action();
  } catch (error) {
    showError(error);
  }
  await refresh();
}

/**
 * @param {string} name
 * @param {Blob} blob
 */
function save(name, blob) {
  const href = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href, download: name }).click();
  // The browser takes hold of the Blob some time after the click.
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** @param {string} question */
function confirmed(question) {
  page.confirmText.textContent = question;
  page.confirm.returnValue = "keep";
  page.confirm.showModal();
  return new Promise((resolve) => {
    page.confirm.onclose = () => resolve(page.confirm.returnValue === "delete");
  });
}

// --- Adding ---------------------------------------------------------------------------------------------

/** @param {Pick<Work, "title" | "resumes" | "run">} work */
function begin(work) {
  showError(null);
  const onDone = (/** @type {string} */ name) => {
    tell(`${name} is here`);
    void refresh();
  };
  page.tasks.append(new ModelTask({ ...work, onDone, onNews: tell }).element);
}

page.add.onsubmit = (/** @type {SubmitEvent} */ event) => {
  event.preventDefault();
  const address = page.address.value.trim();
  const token = page.token.value.trim();
  const headers = token ? { Authorization: `Bearer ${token}` } : undefined;
  begin({
    title: shown(address),
    resumes: true,
    run: (options) => models.download(address, { ...options, ...(headers && { headers }) }),
  });
  page.add.reset();
};

page.files.onchange = () => {
  const files = [...(page.files.files ?? [])];
  page.files.value = "";
  if (files.length === 0) return;
  begin({
    title: files.map(({ name }) => name).join(", "),
    resumes: false,
    run: (options) => models.import(files, options),
  });
};

/** @param {string} address without what may be secret in it */
function shown(address) {
  const name = address.split(/[?#]/, 1)[0];
  return name.slice(name.lastIndexOf("/") + 1) || name;
}

// --- Small things ---------------------------------------------------------------------------------------

/** @param {unknown} error null takes the last one away */
function showError(error) {
  page.error.hidden = error === null;
  page.error.textContent = error === null ? "" : sentence(error);
}

/** @param {string} news */
function tell(news) {
  page.status.textContent = news;
}

// Another tab may have changed what is kept.
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") void refresh();
});

await refresh();
