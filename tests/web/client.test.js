// What the client tells about a request before any endpoint sees it, on an endpoint that records all it sees.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HeadraceClient } from "../../web/client.js";

/** A client with one endpoint, "recorder", and the requests that have reached it. */
async function openRecorder() {
  const started = /** @type {{options: object, cancels: number}[]} */ ([]);
  const client = new HeadraceClient();
  await client.add("recorder", {
    open: async (id) => ({
      id,
      kind: "recorder",
      start: (_operation, _input, options) => {
        const request = { options, cancels: 0 };
        started.push(request);
        return () => request.cancels++;
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
  assert.deepEqual(
    started.map(({ options }) => options),
    [{ maxTokens: 3 }, {}, {}],
  );
  controller.abort();
  assert.deepEqual(
    started.map(({ cancels }) => cancels),
    [1, 0, 0],
  );
});

test("an endpoint that is not there is told by the run", async () => {
  const { client } = await openRecorder();
  await assert.rejects(client.query("nobody", ">").response, { code: "endpoint_unknown" });
});
