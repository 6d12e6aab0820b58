"""Headrace for Python: GGUF models through the native engine, and the server and runner of its web pages.

Counterpart: `web/index.js`. Not the place of the development commands: those are in `build_tools`.
"""

from headrace.errors import ERROR_CODES, HeadraceError
from headrace.library import describe
from headrace.native import Engine
from headrace.run import Reply, Run
from headrace.wire import (
    Adapter,
    EmbedResult,
    Message,
    Result,
    TokenBatch,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)

__version__ = "0.1.0"

__all__ = [
    "ERROR_CODES",
    "Adapter",
    "EmbedResult",
    "Engine",
    "HeadraceError",
    "Message",
    "Reply",
    "Result",
    "Run",
    "TokenBatch",
    "TokenLogprob",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "__version__",
    "describe",
]
