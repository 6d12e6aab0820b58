// An error keeps its code, message and detail through the wire, for every code the engine declares.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { HeadraceError } from "../../web/errors.js";

const DECLARATIONS = new URL("../../build/generated/declarations.json", import.meta.url);

test(
  "every declared code survives the wire",
  { skip: !existsSync(DECLARATIONS) && "the engine was not built" },
  () => {
    const { errors } = JSON.parse(readFileSync(DECLARATIONS, "utf8"));
    assert.ok(errors.length > 10);
    for (const { code } of errors) {
      const sent = new HeadraceError(code, `about ${code}`, {
        detail: { option: "x", limits: [1, 2] },
        cause: new Error("inner"),
      });
      const received = HeadraceError.fromWire(structuredClone(sent.toWire()));
      assert.ok(received instanceof HeadraceError && received instanceof Error);
      assert.deepEqual(
        [received.code, received.message, received.detail],
        [sent.code, sent.message, sent.detail],
      );
    }
  },
);

test("the wire form is plain JSON without the cause", () => {
  const error = new HeadraceError("internal", "It broke.", { cause: new Error("inner") });
  assert.deepEqual(JSON.parse(JSON.stringify(error.toWire())), {
    code: "internal",
    message: "It broke.",
    detail: {},
  });
  assert.equal(error.cause.message, "inner");
  assert.equal(error.name, "HeadraceError");
});

test("from keeps a HeadraceError and wraps everything else", () => {
  const own = new HeadraceError("cancelled", "Stopped.");
  assert.equal(HeadraceError.from(own, "internal", "context"), own);

  const foreign = new TypeError("no such thing");
  const wrapped = HeadraceError.from(foreign, "download_failed", "x could not be reached");
  assert.deepEqual(
    [wrapped.code, wrapped.message, wrapped.cause],
    ["download_failed", "x could not be reached: no such thing", foreign],
  );

  assert.equal(HeadraceError.from("text", "internal", "It failed").message, "It failed: text");
  assert.equal(HeadraceError.from(new Error(""), "internal", "It failed").message, "It failed");
});
