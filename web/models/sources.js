// What a user names a model by, resolved to the files to fetch: URLs, "hf:owner/repo/file.gguf", shard names.
//
// Counterpart: headrace/models/sources.py, the Python twin. Asks no network; what a file really is shows when
// its header has come: split.js.

import { HeadraceError } from "../errors.js";
import { isModelId } from "./names.js";
import { sha256Hex } from "./sha256.js";
import { shardNames } from "./shard_names.js";

/** @import { RemoteFile, RemoteModel } from "./types.js" */

/** Where "hf:" leads. */
export const HUGGING_FACE = "https://huggingface.co";

const SCHEME = "hf:";
/** How many missing files a sentence names. */
const NAMED = 5;
const HOW_TO_NAME = "name the file: hf:owner/repo/file.gguf, with @revision at the end if it is not main";

/**
 * The files of a model. The name of one shard stands for all of them; of a list of shards, in any order, all
 * must be there. Several files without such names stay in the order given: their headers tell the right one.
 * @param {string | URL | (string | URL)[]} source
 * @param {object} [options]
 * @param {string} [options.base] what relative URLs are relative to
 * @param {string} [options.huggingFace] where "hf:" leads (default: HUGGING_FACE)
 * @param {Record<string, string>} [options.headers] sent with every request, never shown or stored
 * @param {string | (string | null)[]} [options.sha256] what the published file must have; of several
 *   files, one for each, in the order of `source`, or of the shards that one name stands for
 * @returns {Promise<RemoteModel>}
 * @throws {HeadraceError} invalid_option
 */
export async function resolveRemote(source, { base, huggingFace = HUGGING_FACE, headers = {}, sha256 } = {}) {
  const given = Array.isArray(source) ? source : [source];
  if (given.length === 0) throw refused("the list of a model's URLs is empty");
  const urls = given.map((one) => absolute(String(one), base, huggingFace));
  const all = urls.length === 1 ? wholeSet(urls[0]) : urls;
  const hashes = expectedHashes(sha256, all.length);
  const order = urls.length === 1 ? [...all.keys()] : orderByName(all.map(fileName));
  const files = [];
  for (const place of order) files.push(await remoteFile(all[place], headers, hashes[place]));
  return { name: modelName(files.map(({ name }) => name)), key: files[0].key, files };
}

/**
 * @param {string} source
 * @param {string | undefined} base
 * @param {string} huggingFace
 */
function absolute(source, base, huggingFace) {
  if (isModelId(source)) {
    throw refused(`${source} is the id of a stored model, not where one can be fetched`);
  }
  let url;
  try {
    url = new URL(source.startsWith(SCHEME) ? huggingFaceUrl(source, huggingFace) : source, base);
  } catch (error) {
    if (error instanceof HeadraceError) throw error;
    throw refused(`${shown(source)} is not an absolute URL, nor does it begin with hf:`);
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    throw refused(`models are fetched from http and https, not from ${url.protocol}`);
  }
  if (isHuggingFace(url, huggingFace)) {
    url.pathname = url.pathname.replace(/^(\/[^/]+\/[^/]+)\/blob\//, "$1/resolve/");
  }
  url.hash = "";
  return url;
}

/** A text that is no URL may still hold a password. @param {string} source */
function shown(source) {
  return source.replace(/[?#].*$/s, "").replace(/^.*@/s, "…@");
}

/**
 * Whether addresses there are built as on huggingface.co, where a file's page is at blob/ and itself at
 * resolve/.
 * @param {URL} url
 * @param {string} huggingFace
 */
function isHuggingFace(url, huggingFace) {
  const bases = [HUGGING_FACE, huggingFace];
  return bases.some((base) => URL.canParse(base) && new URL(base).origin === url.origin);
}

/**
 * @param {string} source
 * @param {string} huggingFace
 */
function huggingFaceUrl(source, huggingFace) {
  const [, path, revision = "main"] = /** @type {RegExpExecArray} */ (
    /^hf:\/*(.*?)(?:(?<=\.gguf)@(.+))?$/is.exec(source)
  );
  const [owner = "", repository = "", ...file] = path.split("/");
  const parts = [owner, repository, ...file];
  if (parts.some((part) => part === "" || part === "." || part === "..") || file.length === 0) {
    throw refused(`${source} names no file of a repository: ${HOW_TO_NAME}`);
  }
  if (!/\.gguf$/i.test(path)) throw refused(`${source} does not end in .gguf: ${HOW_TO_NAME}`);
  const base = huggingFace.replace(/\/+$/, "");
  const repo = [owner, repository].map(encodeURIComponent).join("/");
  return `${base}/${repo}/resolve/${encodeURIComponent(revision)}/${file.map(encodeURIComponent).join("/")}`;
}

/** @param {URL} url */
function lastSegment(url) {
  return url.pathname.slice(url.pathname.lastIndexOf("/") + 1);
}

/** @param {URL} url */
function fileName(url) {
  const segment = lastSegment(url);
  try {
    return decodeURIComponent(segment) || url.hostname;
  } catch {
    return segment;
  }
}

/**
 * Cases F11 and F13: whichever shard was named, all are meant.
 * @param {URL} url
 */
function wholeSet(url) {
  const shards = shardNames(lastSegment(url));
  if (shards === null) return [url];
  const folder = url.pathname.slice(0, url.pathname.lastIndexOf("/") + 1);
  return shards.names.map((name) => {
    const one = new URL(url);
    one.pathname = folder + name;
    return one;
  });
}

/**
 * Cases F10 and F14: the order of several files by their names; as given when not all are names of shards.
 * @param {string[]} names
 * @returns {number[]} places in `names`
 */
function orderByName(names) {
  const shards = names.map(shardNames);
  const known = shards.find((shard) => shard !== null);
  if (!known) return [...names.keys()];
  /** @type {Map<number, number>} */
  const places = new Map();
  for (const [place, shard] of shards.entries()) {
    if (shard === null) continue;
    if (shard.names[0].toLowerCase() !== known.names[0].toLowerCase()) {
      throw refused(`${names[place]} and ${known.names[known.index - 1]} are shards of different models`);
    }
    if (places.has(shard.index)) throw refused(`${names[place]} is in the list twice`);
    places.set(shard.index, place);
  }
  if (names.length < known.count && places.size === names.length) {
    const missing = known.names.filter((_, i) => !places.has(i + 1));
    const listed = missing.slice(0, NAMED).join(", ") + (missing.length > NAMED ? ", …" : "");
    throw refused(`the list lacks ${listed}`, { missing });
  }
  if (names.length !== known.count) {
    throw refused(`the model has ${known.count} shards, but the list has ${names.length}`);
  }
  if (places.size < names.length) return [...names.keys()];
  return known.names.map((_, i) => /** @type {number} */ (places.get(i + 1)));
}

/**
 * @param {string | (string | null)[] | undefined} sha256
 * @param {number} count
 * @returns {(string | null)[]}
 */
function expectedHashes(sha256, count) {
  if (sha256 === undefined || sha256 === null) return Array.from({ length: count }, () => null);
  const given = Array.isArray(sha256) ? sha256 : [sha256];
  if (given.length !== count) {
    throw refused(`sha256 must have one digest for each of the model's ${count} files, not ${given.length}`);
  }
  return given.map((digest) => {
    if (digest === null) return null;
    if (!/^[0-9a-f]{64}$/i.test(digest)) {
      throw refused(`sha256 must be 64 hexadecimal digits, not "${digest}"`);
    }
    return digest.toLowerCase();
  });
}

/**
 * @param {URL} url
 * @param {Record<string, string>} headers
 * @param {string | null} sha256
 * @returns {Promise<RemoteFile>}
 */
async function remoteFile(url, headers, sha256) {
  const display = url.origin + url.pathname;
  // As text: a URL's searchParams would write the other parameters anew.
  const kept = url.search
    .slice(1)
    .split("&")
    .filter((parameter) => parameter.split("=")[0] !== "download");
  const query = kept.some((parameter) => parameter !== "") ? `?${kept.join("&")}` : "";
  return {
    url: display + url.search,
    display,
    key: await sha256Hex(display + query),
    name: fileName(url),
    headers: withCredentials(url, headers),
    sha256,
  };
}

/**
 * fetch refuses a URL with a user and a password: they go where they would end up.
 * @param {URL} url
 * @param {Record<string, string>} headers
 */
function withCredentials({ username, password }, headers) {
  const isGiven = Object.keys(headers).some((name) => name.toLowerCase() === "authorization");
  if (isGiven || (username === "" && password === "")) return { ...headers };
  const pair = new TextEncoder().encode(`${decode(username)}:${decode(password)}`);
  return { ...headers, Authorization: `Basic ${btoa(String.fromCharCode(...pair))}` };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * What people call the model: of shards, what is before their numbers.
 * @param {string[]} names
 */
function modelName(names) {
  if (names.length === 1 || shardNames(names[0]) === null) return names[0];
  return names[0].replace(/-[0-9]{5}-of-[0-9]{5}(\.gguf)$/i, "$1");
}

/**
 * @param {string} sentence
 * @param {Record<string, unknown>} [detail]
 */
function refused(sentence, detail = {}) {
  return new HeadraceError("invalid_option", sentence, { detail: { option: "model", ...detail } });
}
