"""Where things are: the clone, its build folder, and the cache that all clones of a user share.

Counterpart: ARCHITECTURE.md, "What the build leaves". Not a settings store: flags live in the steps.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


def cache_root(environment: Mapping[str, str]) -> Path:
    """The per-user cache: $HEADRACE_CACHE, else $XDG_CACHE_HOME/headrace, else ~/.cache/headrace."""
    if own := environment.get("HEADRACE_CACHE"):
        return Path(own).expanduser().absolute()
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared).absolute() / "headrace"
    return Path(environment.get("HOME") or Path.home()) / ".cache" / "headrace"


@dataclass(frozen=True)
class Workspace:
    """One clone and the cache it uses."""

    root: Path
    cache: Path

    @classmethod
    def default(cls) -> "Workspace":
        """The clone this file belongs to, with the cache the environment asks for."""
        return cls(root=Path(__file__).resolve().parent.parent, cache=cache_root(os.environ))

    @property
    def build(self) -> Path:
        """Everything generated; ignored by git, safe to delete."""
        return self.root / "build"

    @property
    def logs(self) -> Path:
        return self.build / "logs"

    @property
    def stamps(self) -> Path:
        """One file per finished step: the content hash of what went into it."""
        return self.build / "stamps"

    @property
    def llama(self) -> Path:
        """The patched llama.cpp source tree."""
        return self.build / "llama.cpp"

    @property
    def artifacts(self) -> Path:
        """What a page loads: glue, wasm and manifest.json."""
        return self.build / "artifacts"

    @property
    def generated(self) -> Path:
        """Declarations and reference tables made from hr_describe()."""
        return self.build / "generated"

    @property
    def native_library(self) -> Path:
        return self.build / "native" / "libheadrace.so"

    @property
    def native_simulator(self) -> Path:
        return self.build / "native" / "headrace_simulator"

    @property
    def environment(self) -> Path:
        """The virtual environment of the clone."""
        return self.root / ".venv"

    def shown(self, path: Path) -> str:
        """The path as a person types it: relative to the clone where it lies inside."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
