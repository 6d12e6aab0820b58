"""Browsers with a WebGPU adapter: Mesa's with shader-f16, and Chromium's own without.

Counterparts: `build_tools/gpu_adapter.py`, which says how they are started; conftest.py, whose fixtures they
are. Both adapters are the processor's: right as a GPU is right, but slow.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from build_tools.gpu_adapter import REQUIRED, GpuChromium, f16_obstacle, find_f16_chromium
from build_tools.workspace import Workspace
from headrace.headless import LAUNCH_ARGUMENTS

# A browser refuses its GPU to a site after two crashes, and to all after three; tests have to share one.
CRASHES_ALLOWED = ("--disable-domain-blocking-for-3d-apis", "--disable-gpu-process-crash-limit")


@contextmanager
def gpu_browser(
    browser: Browser, gpu: GpuChromium, *, arguments: Sequence[str] = CRASHES_ALLOWED
) -> Iterator[Browser]:
    """Such a browser while the context is open, beside `browser`, whose Playwright starts it.

    With `arguments` empty it refuses its GPU after crashes, as people's browsers do.
    """
    started = browser.browser_type.launch(
        executable_path=gpu.program,
        args=[*LAUNCH_ARGUMENTS, *gpu.arguments, *arguments],
        env={**os.environ, **gpu.environment},
    )
    try:
        yield started
    finally:
        started.close()


def f16_chromium_or_skip(workspace: Workspace, chromium: Path) -> GpuChromium:
    """How to start it; else the test is skipped with the reason, or fails where the adapter is required."""
    reason = f16_obstacle(chromium)
    found = find_f16_chromium(workspace, chromium)
    if found is not None:
        return found
    message = f"there is no WebGPU adapter with shader-f16: {reason or 'python3 -m build_tools setup'}"
    if os.environ.get(REQUIRED):
        pytest.fail(message)
    pytest.skip(message)
