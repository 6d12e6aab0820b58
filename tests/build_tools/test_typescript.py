"""The emitted declarations in a project that is not ours, as TypeScript finds them through package.json."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from build_tools.typescript import GENERATED, compiler, complete
from build_tools.workspace import Workspace

# An unused @ts-expect-error is an error itself: every slip must be one.
PROGRAM = """\
import { Endpoint, HeadraceClient, HeadraceError } from "headrace";
import type { EmbedResult, Result, ToolCall } from "headrace";

export async function answer(file: File): Promise<string> {
  const client = new HeadraceClient();
  const local = await client.add("x", Endpoint.local({ model: file, context: { size: 2048 } }));
  const run = client.chat(local, [{ role: "user", content: "Hello" }], { maxTokens: 8, stop: ["."] });
  for await (const batch of run.tokens) console.log(batch.text.length);
  const result: Result = await run.response;
  // @ts-expect-error a misspelt option of a request
  client.query(local, "1, 2,", { maxToken: 8 });
  // @ts-expect-error a mistyped option of a request
  client.query(local, "1, 2,", { maxTokens: "8" });
  // @ts-expect-error a misspelt option of an endpoint
  Endpoint.local({ model: file, thread: 2 });
  // @ts-expect-error a field that no result has
  console.log(result.stats.artefact);
  return result.stats.artifact + result.finishReason;
}

export async function everythingElse(file: File): Promise<number[]> {
  const client = new HeadraceClient();
  const adapters = [{ name: "fr", model: "fr.gguf", scale: 0.5 }];
  const local = Endpoint.local({ model: file, adapters, schedule: "latency", queueLimit: 4 });
  await client.add("x", local);
  // @ts-expect-error there is no such schedule
  Endpoint.local({ model: file, schedule: "fast" });
  // @ts-expect-error a page has no folder
  Endpoint.local({ model: file, prefixCacheFolder: "/tmp" });

  const embedding: EmbedResult = await client.embed("x", ["a"], { normalize: true }).response;
  // @ts-expect-error an option of another operation
  client.embed("x", "a", { maxTokens: 8 });
  // @ts-expect-error vectors have no text
  console.log(embedding.text);

  const { toolCalls } = await client.chat("x", [{ role: "tool", content: "1", tool_call_id: "a" }]).response;
  const calls: ToolCall[] = toolCalls ?? [];
  const ids: number[] = await client.tokenize("x", calls[0]?.arguments ?? "", { addSpecial: false });
  const text: string = await client.detokenize("x", ids);
  const count = await client.countTokens("x", text, { addSpecial: false });
  const more = await client.countTokens("x", [{ role: "user", content: "Hi" }], { tools: [] });
  // @ts-expect-error an option of texts, asked of messages
  await client.countTokens("x", [{ role: "user", content: "Hi" }], { addSpecial: false });
  const { snapshots } = await client.metrics("x");
  const [op] = await client.audit("x");
  return [count, more, snapshots.hits, op?.count ?? 0, embedding.vectors[0]?.[0] ?? 0];
}

export function isCancelled(error: unknown): boolean {
  if (!(error instanceof HeadraceError)) return false;
  // @ts-expect-error a code that does not exist
  if (error.code === "canceled") return true;
  return error.code === "cancelled";
}
"""


@pytest.mark.parametrize("resolution", ["bundler", "nodenext"])
def test_a_users_program_is_checked_against_the_types(
    resolution: str, workspace: Workspace, types_dir: Path, node: Path, tmp_path: Path
) -> None:
    """In a folder of its own, where the package lies as the wheel or npm leaves it."""
    if not compiler(workspace).is_file():
        pytest.skip("tsc is not there: python3 -m build_tools types")
    package = tmp_path / "node_modules" / "headrace"
    shutil.copytree(types_dir, package / "types")
    for name in ("package.json", "index.js"):
        shutil.copy(workspace.root / "web" / name, package)
    options = {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "types": [],
        "module": "esnext" if resolution == "bundler" else resolution,
        "moduleResolution": resolution,
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["use.ts"]}))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "use.ts").write_text(PROGRAM)
    argv = [str(node), str(compiler(workspace)), "--pretty", "false"]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_the_generated_declarations_are_named_by_where_they_lie(tmp_path: Path) -> None:
    types = tmp_path / "types"
    line = f'import type {{ X }} from "{GENERATED}";\n'
    for name in ("client.d.ts", "endpoints/local.d.ts", "playground/playground.d.ts"):
        (types / name).parent.mkdir(parents=True, exist_ok=True)
        (types / name).write_text(line)
    (tmp_path / "declarations.d.ts").write_text("export type X = 1;\n")
    complete(types, tmp_path / "declarations.d.ts")
    assert (types / "client.d.ts").read_text() == 'import type { X } from "./declarations.js";\n'
    assert (types / "endpoints/local.d.ts").read_text() == 'import type { X } from "../declarations.js";\n'
    assert (types / "declarations.d.ts").read_text() == "export type X = 1;\n"
    assert not (types / "playground").exists()
