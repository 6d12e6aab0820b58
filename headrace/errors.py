"""The one error class of the Python package and the codes it can carry.

Counterparts: `native/engine/error.h`, where the codes are declared, and `web/errors.js`, the same
class for JavaScript. Not the place where messages are written: those come from whoever raises.
"""

from collections.abc import Mapping
from typing import Literal, get_args

ErrorCode = Literal[
    "artifact_missing",
    "cancelled",
    "context_overflow",
    "deadline_exceeded",
    "device_lost",
    "download_failed",
    "endpoint_unknown",
    "engine_aborted",
    "engine_closed",
    "environment_unsupported",
    "gpu_failed",
    "gpu_mismatch",
    "grammar_invalid",
    "hash_mismatch",
    "internal",
    "invalid_option",
    "invalid_request",
    "kernel_missing",
    "model_in_use",
    "model_invalid",
    "model_not_found",
    "model_truncated",
    "numeric_fault",
    "out_of_memory",
    "queue_full",
    "storage_failed",
    "storage_full",
    "template_missing",
    "template_rejected",
    "unsupported_operation",
    "version_mismatch",
    "worker_crashed",
]

ERROR_CODES: frozenset[str] = frozenset(get_args(ErrorCode))


class HeadraceError(Exception):
    """Anything Headrace could not do.

    `code` is one of `ERROR_CODES` and the same in C++, JavaScript and Python; `message` is one
    sentence for people; `detail` holds JSON values that belong to the code (default: none);
    `cause` is the foreign exception behind it, if there was one.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        detail: Mapping[str, object] | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.code: str = code
        self.message = message
        self.detail: dict[str, object] = dict(detail or {})
        self.cause = cause
        self.__cause__ = cause

    @classmethod
    def from_wire(cls, record: object) -> "HeadraceError":
        """The error for a `{code, message, detail}` record; a record of any other shape is `internal`."""
        if not isinstance(record, Mapping) or not isinstance(record.get("message"), str):
            return cls("internal", f"the engine reported an error of unknown shape: {record!r}")
        detail = record.get("detail")
        error = cls("internal", record["message"], detail if isinstance(detail, Mapping) else None)
        # A code this version does not know still reaches the caller as it was sent.
        error.code = str(record.get("code", "internal"))
        return error

    def to_wire(self) -> dict[str, object]:
        """The `{code, message, detail}` record of this error."""
        return {"code": self.code, "message": self.message, "detail": self.detail}

    def __reduce__(self) -> tuple[object, ...]:
        return (HeadraceError.from_wire, (self.to_wire(),))
