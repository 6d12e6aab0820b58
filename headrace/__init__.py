"""Headrace for Python: GGUF models through the native engine, and the server and runner of its web pages.

Counterpart: `web/index.js`. Not the place of the development commands: those are in `build_tools`.
"""

from headrace.errors import ERROR_CODES, HeadraceError
from headrace.native import Engine, Run, describe
from headrace.wire import Message, Result, TokenBatch, Usage

__version__ = "0.1.0"

__all__ = [
    "ERROR_CODES",
    "Engine",
    "HeadraceError",
    "Message",
    "Result",
    "Run",
    "TokenBatch",
    "Usage",
    "__version__",
    "describe",
]
