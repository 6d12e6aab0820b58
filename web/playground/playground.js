// The demo page: load one model, hold one conversation, show what runs and how fast.
//
// Counterparts: index.html, playground.css. An example of using the library, and no part of it: everything
// it does goes through index.js.

import { Endpoint, HeadraceClient } from "../index.js";
import { element, megabytes, progressSentence, sentence } from "./page.js";

/** @import { Capabilities, ChatMessage, Progress, Result, Run } from "../index.js" */

const page = {
  chooser: element("chooser", HTMLDetailsElement),
  chooserTitle: element("chooser-title", HTMLElement),
  demo: element("demo", HTMLButtonElement),
  file: element("file", HTMLInputElement),
  fileLabel: element("file-label", HTMLLabelElement),
  cancelLoad: element("cancel-load", HTMLButtonElement),
  loading: element("loading", HTMLElement),
  progress: element("progress", HTMLProgressElement),
  progressText: element("progress-text", HTMLElement),
  facts: element("facts", HTMLElement),
  summary: element("summary", HTMLElement),
  reasons: element("reasons", HTMLElement),
  log: element("log", HTMLElement),
  error: element("error", HTMLElement),
  status: element("status", HTMLElement),
  composer: element("composer", HTMLFormElement),
  prompt: element("prompt", HTMLTextAreaElement),
  send: element("send", HTMLButtonElement),
  stop: element("stop", HTMLButtonElement),
  reset: element("reset", HTMLButtonElement),
  temperature: element("temperature", HTMLInputElement),
  maxTokens: element("max-tokens", HTMLInputElement),
};

const MODEL_ID = "model";
const client = new HeadraceClient();

/** @type {ChatMessage[]} */ let conversation = [];
/** @type {Run | null} */ let run = null;
/** @type {AbortController | null} */ let load = null;

// --- Loading a model ----------------------------------------------------------------------------------

/** @param {string | File} model */
async function loadModel(model) {
  showError(null);
  showLoading(true);
  load = new AbortController();
  try {
    if (client.list().length > 0) await client.remove(MODEL_ID);
    page.facts.hidden = page.composer.hidden = true;
    page.chooserTitle.textContent = "Choose a model";
    startConversation();
    await client.add(MODEL_ID, Endpoint.local({ model, onProgress: showProgress, signal: load.signal }));
    showFacts(client.capabilities(MODEL_ID));
    page.composer.hidden = false;
    page.prompt.focus();
  } catch (error) {
    showError(error);
  } finally {
    load = null;
    showLoading(false);
  }
}

/** @param {boolean} busy */
function showLoading(busy) {
  page.loading.hidden = page.cancelLoad.hidden = !busy;
  page.demo.disabled = page.file.disabled = busy;
  page.fileLabel.hidden = busy;
  page.progressText.textContent = "Starting…";
  page.progress.removeAttribute("value");
}

/** @param {Progress} progress */
function showProgress(progress) {
  const { loaded, total } = progress;
  if (total) page.progress.value = loaded / total;
  else page.progress.removeAttribute("value");

  if ("file" in progress) page.progressText.textContent = progressSentence(progress);
  else if (progress.phase === "start") page.progressText.textContent = "Starting the engine…";
  else page.progressText.textContent = `Reading the model… ${Math.floor((100 * loaded) / progress.total)} %`;
}

/** @param {Capabilities} capabilities */
function showFacts({ model, artifact, threads, backend, gpu, reasons }) {
  const engine = artifact === "mt" ? `${threads} ${threads === 1 ? "thread" : "threads"}` : "single thread";
  page.chooserTitle.textContent = "Choose another model";
  page.chooser.open = false;
  page.summary.textContent =
    `${model.name || "This model"}: ${model.architecture}, ` +
    `${millions(model.parameters)} parameters, ${megabytes(model.bytes)}. ` +
    `Runs on ${processor(backend, gpu)}, ${engine} (artifact ${artifact}).`;
  page.reasons.replaceChildren(
    ...reasons.map((reason) => Object.assign(document.createElement("li"), { textContent: reason })),
  );
  page.facts.hidden = false;
}

/**
 * @param {Capabilities["backend"]} backend
 * @param {Capabilities["gpu"]} gpu
 */
function processor(backend, gpu) {
  if (backend === "cpu") return "CPU";
  return gpu ? `WebGPU (${gpu.description}, ${gpu.layers} of ${gpu.layersTotal} layers)` : "WebGPU";
}

// --- The conversation ---------------------------------------------------------------------------------

function startConversation() {
  run?.cancel();
  conversation = [];
  page.log.replaceChildren();
}

async function ask() {
  const text = page.prompt.value.trim();
  if (run || text === "") return;
  showError(null);
  page.prompt.value = "";

  const messages = [...conversation, { role: "user", content: text }];
  const question = addTurn("user", text);
  const answer = addTurn("assistant", "");
  const figures = addFigures();
  answer.classList.add("pending");
  showRunning(true);
  try {
    const current = client.chat(MODEL_ID, messages, {
      temperature: page.temperature.valueAsNumber,
      maxTokens: page.maxTokens.valueAsNumber,
    });
    run = current;
    await showTokens(current, answer, figures);
    const result = await current.response;
    figures.textContent = describe(result);
    // Read out as one answer, for which the log itself is silent.
    page.status.textContent = result.text;
    if (question.isConnected) conversation = [...messages, { role: "assistant", content: result.text }];
  } catch (error) {
    // What was not answered is not part of the conversation: the question goes back to be sent again.
    for (const node of [question, answer, figures]) node.remove();
    page.prompt.value ||= text;
    showError(error);
  } finally {
    run = null;
    answer.classList.remove("pending");
    showRunning(false);
  }
}

/**
 * @param {Run} current
 * @param {HTMLElement} answer
 * @param {HTMLElement} figures
 */
async function showTokens(current, answer, figures) {
  let tokens = 0;
  let firstAt = 0;
  for await (const { text, tokenIds } of current.tokens) {
    firstAt ||= performance.now();
    const follow = atBottom();
    answer.append(text);
    tokens += tokenIds.length;
    const seconds = (performance.now() - firstAt) / 1000;
    if (seconds > 0.25) figures.textContent = `${tokens} tokens, ${(tokens / seconds).toFixed(1)} tokens/s`;
    if (follow) scrollToBottom();
  }
}

/** @param {Result} result */
function describe({ usage, stats, finishReason }) {
  const parts = [`${usage.outputTokens} tokens`];
  if (stats.decodeTokensPerSecond) parts.push(`${stats.decodeTokensPerSecond.toFixed(1)} tokens/s`);
  if (stats.ttftMs) parts.push(`first after ${(stats.ttftMs / 1000).toFixed(2)} s`);
  const { source, tokens } = stats.cache;
  if (tokens) parts.push(`${tokens} of ${usage.inputTokens} tokens cached (${source})`);
  if (finishReason === "length") parts.push("longest answer reached");
  if (finishReason === "cancelled") parts.push("stopped");
  return parts.join(" · ");
}

/**
 * @param {"user" | "assistant"} role
 * @param {string} text
 */
function addTurn(role, text) {
  const turn = document.createElement("div");
  turn.className = `turn ${role}`;
  turn.textContent = text;
  page.log.append(turn);
  scrollToBottom();
  return turn;
}

function addFigures() {
  const figures = Object.assign(document.createElement("p"), { className: "figures" });
  page.log.append(figures);
  return figures;
}

/** @param {boolean} running */
function showRunning(running) {
  page.stop.hidden = !running;
  page.send.hidden = running;
  if (!running) page.prompt.focus();
}

/** @param {unknown} error null takes the last one away */
function showError(error) {
  page.error.hidden = error === null;
  if (error !== null) page.error.textContent = sentence(error);
}

// --- Small things -------------------------------------------------------------------------------------

function atBottom() {
  const { scrollHeight, scrollTop, clientHeight } = document.documentElement;
  return scrollHeight - scrollTop - clientHeight < 80;
}

function scrollToBottom() {
  window.scrollTo({ top: document.documentElement.scrollHeight });
}

/** @param {number} count */
function millions(count) {
  return count < 1e9 ? `${Math.round(count / 1e6)} million` : `${(count / 1e9).toFixed(1)} billion`;
}

/** Shows the demo button if this server offers a model. */
async function findDemoModel() {
  try {
    const response = await fetch("/models/");
    if (!response.ok) return;
    const [demo] = /** @type {{name: string, bytes: number, url: string}[]} */ (await response.json());
    if (!demo) return;
    page.demo.textContent = `Load ${demo.name} (${megabytes(demo.bytes)})`;
    page.demo.hidden = false;
    page.demo.onclick = () => loadModel(new URL(demo.url, location.href).href);
  } catch {
    // Served without models: a file can still be opened.
  }
}

page.file.onchange = () => {
  const [file] = page.file.files ?? [];
  if (file) void loadModel(file);
  page.file.value = "";
};
page.cancelLoad.onclick = () => load?.abort();
page.composer.onsubmit = (/** @type {SubmitEvent} */ event) => {
  event.preventDefault();
  void ask();
};
page.prompt.onkeydown = (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  page.composer.requestSubmit();
};
page.stop.onclick = () => run?.cancel();
page.reset.onclick = () => {
  startConversation();
  showError(null);
  page.prompt.focus();
};
document.onkeydown = (event) => {
  if (event.key === "Escape") run?.cancel();
};

await findDemoModel();
// The page of models leads here with one of them.
const chosen = new URLSearchParams(location.search).get("model");
if (chosen) void loadModel(chosen);
