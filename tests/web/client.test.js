// What the client makes of its operations, on an endpoint that records all it is asked and answers as told.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HeadraceClient } from "../../web/client.js";
import { HeadraceError } from "../../web/errors.js";

const ORIGIN = { endpoint: "recorder", requestId: 1, reasons: [] };

/**
 * A client with one endpoint, "recorder", and the requests that have reached it.
 * @param {(request: object, feed: object) => void} [answer]
 */
async function openRecorder(answer = () => {}) {
  const started = /** @type {{request: object, cancels: number}[]} */ ([]);
  const client = new HeadraceClient();
  await client.add("recorder", {
    open: async (id) => ({
      id,
      kind: "recorder",
      start: (request, feed) => {
        const entry = { request, cancels: 0 };
        started.push(entry);
        answer(request, feed);
        return () => entry.cancels++;
      },
      capabilities: () => assert.fail("nobody asks"),
      close: async () => {},
    }),
  });
  return { client, started };
}

const REFUSED = [
  ["signal", { signal: {} }],
  ["signal", { signal: null }],
  ["signal", { signal: new AbortController() }],
  ["options", null],
  ["options", 5],
  ["options", "maxTokens"],
  ["options", [1]],
];

for (const [option, options] of REFUSED) {
  for (const operation of ["query", "chat", "embed"]) {
    test(`${operation} refuses ${option} before anything starts: ${JSON.stringify(options)}`, async () => {
      const { client, started } = await openRecorder();
      const run = client[operation]("recorder", ">", options);
      run.cancel();
      await assert.rejects(run.response, (error) => {
        assert.equal(error.name, "HeadraceError");
        assert.equal(error.code, "invalid_option");
        assert.deepEqual(error.detail, { option });
        assert.doesNotMatch(error.message, /\n/);
        return true;
      });
      assert.deepEqual(started, []);
    });
  }
}

test("options reach the endpoint without the signal, which cancels", async () => {
  const { client, started } = await openRecorder();
  const controller = new AbortController();
  client.query("recorder", ">", { maxTokens: 3, signal: controller.signal });
  client.query("recorder", ">", { signal: undefined });
  client.query("recorder", ">");
  client.embed("recorder", ">", { normalize: true, signal: controller.signal });
  assert.deepEqual(
    started.map(({ request }) => request.options),
    [{ maxTokens: 3 }, {}, {}, { normalize: true }],
  );
  controller.abort();
  assert.deepEqual(
    started.map(({ cancels }) => cancels),
    [1, 0, 0, 1],
  );
});

test("an endpoint that is not there is told by the run, or by the promise", async () => {
  const { client } = await openRecorder();
  await assert.rejects(client.query("nobody", ">").response, { code: "endpoint_unknown" });
  await assert.rejects(client.tokenize("nobody", ">"), { code: "endpoint_unknown" });
});

const MESSAGES = [{ role: "user", content: "Hi" }];
const TOOLS = { tools: [] };

/** [what is called, what reaches the endpoint, its answer, what the caller gets] */
const OPERATIONS = [
  [["embed", "a"], { operation: "embed", inputs: ["a"], options: {} }],
  [["embed", ["a", "b"]], { operation: "embed", inputs: ["a", "b"], options: {} }],
  [["tokenize", "a"], { operation: "tokenize", text: "a" }, { tokenIds: [7] }, [7]],
  [
    ["tokenize", "a", { addSpecial: false }],
    { operation: "tokenize", text: "a", options: { addSpecial: false } },
    { tokenIds: [7] },
    [7],
  ],
  [["detokenize", [7]], { operation: "detokenize", tokenIds: [7] }, { text: "a" }, "a"],
  [["countTokens", "a"], { operation: "countTokens", text: "a" }, { tokens: 0 }, 0],
  [
    ["countTokens", MESSAGES, TOOLS],
    { operation: "countTokens", messages: MESSAGES, options: TOOLS },
    { tokens: 3 },
    3,
  ],
  [
    ["applyTemplate", MESSAGES, TOOLS],
    { operation: "applyTemplate", messages: MESSAGES, options: TOOLS },
    { prompt: "Hi" },
    "Hi",
  ],
  [["audit"], { operation: "audit" }, { ops: [{ op: "ROPE" }] }, [{ op: "ROPE" }]],
  [["metrics"], { operation: "metrics" }, { accepted: 2 }, { accepted: 2 }],
];

for (const [[method, ...args], request, answer, value] of OPERATIONS) {
  test(`${method}(${JSON.stringify(args)}) asks for what it says and gives what is answered`, async () => {
    const result = answer ?? { vectors: [[1]], dimensions: 1 };
    const { client, started } = await openRecorder((_request, feed) => feed.done({ ...result, ...ORIGIN }));
    const outcome = client[method]("recorder", ...args);
    if (answer) {
      assert.deepEqual(await outcome, value);
    } else {
      assert.deepEqual(await outcome.response, { ...result, ...ORIGIN });
      for await (const _ of outcome.tokens) assert.fail("there are no tokens");
    }
    assert.deepEqual(started, [{ request, cancels: 0 }]);
  });
}

for (const method of ["tokenize", "countTokens", "applyTemplate"]) {
  for (const options of [null, 5, "addSpecial", [1]]) {
    test(`${method} refuses options that are none: ${JSON.stringify(options)}`, async () => {
      const { client, started } = await openRecorder();
      const error = { code: "invalid_option", detail: { option: "options" } };
      await assert.rejects(client[method]("recorder", "a", options), error);
      assert.deepEqual(started, []);
    });
  }
}

test("what an endpoint refuses or fails at, at once or later, keeps its code", async () => {
  const refusal = new HeadraceError("unsupported_operation", "Not this one.", { detail: { operation: "x" } });
  const refusing = await openRecorder(() => {
    throw refusal;
  });
  const failing = await openRecorder((_request, feed) => setTimeout(() => feed.fail(refusal)));
  for (const { client } of [refusing, failing]) {
    for (const [[method, ...args], , answer] of OPERATIONS) {
      const outcome = client[method]("recorder", ...args);
      await assert.rejects(answer ? outcome : outcome.response, refusal);
    }
  }
});

for (const [option, options] of [
  ["options", null],
  ["options", 7],
  ["model", { model: {} }],
  ["models", { models: 7 }],
  ["models.limit", { models: { limit: 1 } }],
  ["models.limitBytes", { models: { limitBytes: 0 } }],
  ["models.limitBytes", { models: { limitBytes: "1 GB" } }],
]) {
  test(`a client refuses by name: ${option} of ${JSON.stringify(options)}`, () => {
    assert.throws(() => new HeadraceClient(/** @type {any} */ (options)), {
      code: "invalid_option",
      detail: { option },
    });
  });
}

test("endpoints are told of the client's models and their limit", async () => {
  const client = new HeadraceClient({ models: { limitBytes: 5 } });
  const told = await new Promise((resolve) => {
    const opening = client.add("x", { open: async (_id, _signal, context) => resolve(context) });
    opening.catch(() => {});
  });
  assert.deepEqual(told, { limitBytes: 5, models: client.models });
});
