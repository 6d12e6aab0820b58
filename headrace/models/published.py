"""What servers have told of a published file, and whether what they tell now still fits it.

Counterpart: `web/models/download.js`, the same rules. Makes no requests: `transport.py` does.
"""

from headrace.errors import HeadraceError
from headrace.models.partial import Partial
from headrace.models.retries import Transient
from headrace.models.sources import RemoteFile
from headrace.models.transport import FINAL_STATUS, Answer

_REASONS = {
    401: "its server wants a token (status 401)",
    403: "its server refuses access (status 403); a token may be missing, or wrong",
    404: "there is no such file on its server (status 404)",
    410: "it is no longer on its server (status 410)",
}


class Changed(Exception):
    """The file is another one than the one that has come so far."""


class PublishedFile:
    """`ranged`: whether asking for ranges makes sense. `expected_sha256`: as the caller or a header tells."""

    def __init__(self, file: RemoteFile, partial: Partial) -> None:
        self._file = file
        self._partial = partial
        self._journal = partial.journal
        self.is_known = partial.ranges.total > 0
        self.ranged = True
        self.expected_sha256 = file.sha256

    @property
    def etag(self) -> str | None:
        return self._journal.etag

    @property
    def validator(self) -> str | None:
        """What a range is asked for on condition of."""
        journal = self._journal
        if journal.etag is None:
            return journal.last_modified
        # A weak ETag may not be asked for; whether it is the same one is compared in any case.
        return None if journal.etag.startswith("W/") else journal.etag

    def learn(self, answer: Answer) -> None:
        """Takes what a response tells; raises Changed when it was told otherwise before.

        Raises hash_mismatch when the caller wants other bytes, before they are fetched.
        """
        self._take_hash(answer.sha256)
        journal = self._journal
        if answer.encoded:
            self.ranged = False
        if not self.is_known:
            journal.etag, journal.last_modified = answer.etag, answer.last_modified
            self.is_known = True
            self._partial.set_size(answer.total)
            return
        if answer.encoded:
            return
        if _differ(journal.size, answer.total):
            raise Changed
        with_etags = None not in (journal.etag, answer.etag)
        if _differ(journal.etag, answer.etag) or (
            not with_etags and _differ(journal.last_modified, answer.last_modified)
        ):
            raise Changed
        if journal.size is None and answer.total is not None:
            self._partial.set_size(answer.total)

    def refuse_status(self, answer: Answer) -> None:
        """Raises download_failed for an answer that is final, Transient for one that may be another later."""
        status = answer.status
        reason = _REASONS.get(status, f"its server answers with status {status}")
        if status in FINAL_STATUS:
            raise self.failure(reason, status)
        if status not in (200, 206):
            raise Transient(reason, status, answer.retry_after)

    def require_hash(self, sha256: str) -> None:
        """Raises hash_mismatch when other bytes have come than those that were told."""
        if _differ(self.expected_sha256, sha256):
            self._mismatch(sha256, "its bytes are not those whose hash was given")

    def failure(self, reason: str, status: int | None = None) -> HeadraceError:
        """A download_failed."""
        display = self._file.display
        return HeadraceError(
            "download_failed",
            f"{display} could not be downloaded: {reason}",
            {"file": display, "status": status},
        )

    def _take_hash(self, sha256: str | None) -> None:
        if sha256 is not None and _differ(self._file.sha256, sha256):
            self._mismatch(sha256, "its server offers other bytes than those wanted")
        if _differ(self.expected_sha256, sha256):
            raise Changed
        self.expected_sha256 = self.expected_sha256 or sha256

    def _mismatch(self, actual: str, reason: str) -> None:
        display = self._file.display
        raise HeadraceError(
            "hash_mismatch",
            f"{display} was not kept: {reason}",
            {"file": display, "expected": self.expected_sha256, "actual": actual},
        )


def _differ(before: object, now: object) -> bool:
    return None not in (before, now) and before != now
