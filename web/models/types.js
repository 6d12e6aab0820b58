// What the parts of the model store hand to each other, and what it writes down. Types only, no code.
//
// Counterparts: opfs_storage.js and memory_storage.js implement Storage, headrace/models/ is the Python twin
// with the same layout on disk. Told in ARCHITECTURE.md, "The model store".

// --- Storage: a flat folder of files --------------------------------------------------------------------

/**
 * What can be mounted for the engine, whatever its bytes lie in. `read` copies as many bytes as there are,
 * at most `target.length`, from byte `at` on, and returns how many; `target` may lie in shared memory.
 * `close` may be called again.
 * @typedef {object} ReadableFile
 * @property {number} size bytes
 * @property {(target: Uint8Array, at: number) => number} read
 * @property {() => void} close
 */

/**
 * A file that one worker writes. `write` puts all of `source` at byte `at` (a gap before it holds zeros) or
 * throws storage_full or storage_failed; `flush` returns when what was written would survive a crash.
 * @typedef {ReadableFile & {write(source: Uint8Array, at: number): void, truncate(size: number): void,
 *   flush(): void}} WritableFile
 */

/**
 * Names are of letters, digits, ".", "-" and "_". Every method may reject with storage_failed.
 * @typedef {object} Storage
 * @property {"opfs" | "memory"} kind
 * @property {() => Promise<{name: string, size: number}[]>} list in the order of their names
 * @property {(name: string) => Promise<ReadableFile>} openRead any number at once; model_not_found when there
 *   is no such file, model_in_use while it is written
 * @property {(name: string) => Promise<WritableFile>} openWrite alone, made when it is not there, else as it
 *   was left; model_in_use while it is open
 * @property {(name: string) => Promise<string | null>} readText null when there is no such file
 * @property {(name: string, text: string) => Promise<void>} writeText whole or not at all, also in a crash
 * @property {(from: string, to: string) => Promise<void>} rename replaces `to`; model_in_use while either is
 *   open, model_not_found
 * @property {(name: string) => Promise<void>} remove nothing happens when there is no such file; model_in_use
 * @property {(name: string) => Promise<Blob>} blob its bytes, not yet read; model_not_found
 * @property {() => Promise<{usedBytes: number, quotaBytes: number | null}>} estimate of the whole origin, as
 *   the browser tells it; null when it does not
 */

// --- Where bytes come from ------------------------------------------------------------------------------

/**
 * One published file. `url` may hold secrets and is never shown or stored; `key` is the sha256 of the URL
 * and `display` the URL without user, password, query and fragment. `headers` go with every request for it.
 * @typedef {object} RemoteFile
 * @property {string} url absolute
 * @property {string} display
 * @property {string} key 64 hexadecimal digits
 * @property {string} name file name, for people
 * @property {Record<string, string>} headers
 * @property {string | null} sha256 what its bytes must have, 64 hexadecimal digits
 */

/**
 * A model to fetch: one file, or the shards of one model in their order.
 * @typedef {{name: string, key: string, files: RemoteFile[]}} RemoteModel `key` is that of its first file
 */

// --- GGUF -------------------------------------------------------------------------------------------------

/**
 * A file's header. `metadata` has scalars and texts by key; of an array only its type and length.
 * `metadataBytes` is where the key-value pairs lie in the file, as they are written.
 * @typedef {object} GgufHeader
 * @property {number} alignment
 * @property {Map<string, number | bigint | boolean | string | {type: number, length: number}>} metadata
 * @property {number} metadataCount
 * @property {[number, number]} metadataBytes first byte, and the one behind the last
 * @property {GgufTensor[]} tensors in the order of the file
 * @property {number} dataStart where the tensors' data begins
 * @property {number} dataEnd where the last tensor's data ends
 */

/**
 * `offset` counts from dataStart.
 * @typedef {{name: string, shape: number[], type: number, offset: number, bytes: number}} GgufTensor
 */

/**
 * Which bytes of a published file lie in which stored file. A stored file begins with `header`, if it has
 * one of its own, and goes on with the published bytes from `start` to `end` (null: to the end, which is not
 * known yet). The pieces follow each other without a gap; before the first lies the published header, which
 * is kept beside them until all has come, for the hash.
 * @typedef {{header: Uint8Array | null, start: number, end: number | null}} Piece
 */

// --- What is written down ---------------------------------------------------------------------------------

/** @typedef {{sha256: string, size: number}} HashedFile */

/** Where a model came from. @typedef {{key: string, display: string, etag: string | null}} Origin */

/**
 * `model-<64 digits of id>.json`. The bytes lie in `<sha256>.gguf`, one for each of `files`.
 * @typedef {object} Manifest
 * @property {1} version
 * @property {string} id "sha256-" and the sha256 of the published file; of several, of their digests joined
 *   by newlines
 * @property {string} name for people
 * @property {number} size bytes of `files`
 * @property {Origin[]} sources the key is that of the first published file
 * @property {HashedFile[]} parts the published files, in order
 * @property {HashedFile[]} files what is stored, in the order of loading; other than `parts` when a large file
 *   was split here
 * @property {string | null} projector id of the stored model that is its multimodal projector
 * @property {string | null} license general.license
 * @property {string | null} architecture general.architecture
 * @property {string} addedAt ISO 8601, UTC
 * @property {string} usedAt
 * @property {boolean} pinned never evicted
 */

/** What `client.models` shows of a model. @typedef {Manifest & {inUse: boolean}} StoredModel */

/**
 * `partial-<key>.json`: what has come of one published file so far. Its bytes lie in `partial-<key>-1.gguf`
 * and so on, the published header of a file that is split in `partial-<key>-head.gguf`. A range is written
 * here only after its bytes were flushed.
 * @typedef {object} Journal
 * @property {1} version
 * @property {string} key
 * @property {string} display
 * @property {string} name
 * @property {number | null} size
 * @property {string | null} etag
 * @property {string | null} lastModified
 * @property {[number, number][]} ranges of the published file, sorted, apart from each other; first byte, and
 *   the one behind the last
 * @property {string} startedAt
 */

/**
 * A published file that has come whole and has the right hash, still under its `partial-` names.
 * @typedef {object} FetchedFile
 * @property {HashedFile} part
 * @property {(HashedFile & {name: string})[]} files
 * @property {string | null} etag
 * @property {GgufHeader} header of the published file
 */

// --- Progress ---------------------------------------------------------------------------------------------

/**
 * `wait` is another tab downloading the same (its figures), or a lock; `bytesPerSecond` and `secondsLeft` are
 * null while too little is known.
 * @typedef {object} StoreProgress
 * @property {"wait" | "download" | "import" | "verify"} phase
 * @property {number} loaded bytes, those of earlier sessions included
 * @property {number | null} total null when the server does not tell
 * @property {number | null} bytesPerSecond
 * @property {number | null} secondsLeft
 */

export {};
