"""The exceptions of this package.

MillstreamError
├── ConnectionFailed      no answer: the write may have happened all the same
├── QueryFailed           a live query ended with an error or at a limit
├── RecordsLost           records that were asked for are gone by retention
├── StreamFailed          the server gave up a stream and does not go on with it
└── ProblemError          the server refused; status, title, detail, type, rule, remedy
    ├── InvalidError              400, 413, 422
    ├── AuthenticationError       401
    ├── PermissionDeniedError     403
    ├── NotFoundError             404
    ├── ConflictError             409
    ├── PreconditionFailedError   412
    ├── TooManyRequestsError      429
    └── UnavailableError          502, 503, 504
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx


class MillstreamError(Exception):
    """The base of all exceptions of this package."""


class ConnectionFailed(MillstreamError):
    """The server was not reached, or the connection broke before the answer; a write may have happened all the same."""


class QueryFailed(MillstreamError):
    """A live query ended with cause `error` or `limit`, after the rows that it had; `meta` has the details."""

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.cause: str = meta["cause"]
        self.meta = dict(meta)
        errors = meta.get("errors", ())
        reasons = [str(error.get("message", error)) if isinstance(error, dict) else str(error) for error in errors]
        super().__init__(f"the query ended with cause {self.cause!r}: {'; '.join(reasons) or 'no reason given'}")


class RecordsLost(MillstreamError):
    """Records are gone by retention. The iterator that raised this goes on behind them when it is asked again."""

    def __init__(self, gap: Mapping[str, Any]) -> None:
        self.gap = dict(gap)
        super().__init__(f"records are gone by retention: {json.dumps(self.gap)}; iterate again to go on behind them")


class StreamFailed(MillstreamError):
    """The server ended a stream again and again without any progress."""


class ProblemError(MillstreamError):
    """The server refused a request.

    `type`, `title`, `status` and `detail` are those of RFC 9457. `rule` and `remedy` say which rule was broken and what
    to do; `members` has everything that the server said.
    """

    def __init__(self, status: int, members: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.members = dict(members)
        # NGSI-v2 names an error and describes it.
        self.title = str(members.get("title") or members.get("error") or f"status {status}")
        self.detail = str(members.get("detail") or members.get("description") or "")
        self.type = str(members.get("type") or "about:blank")
        self.rule: str | None = members.get("rule")
        self.remedy: str | None = members.get("remedy")
        self.retry_after_s = retry_after_s
        said = [part for part in (self.detail or self.title, self.rule, self.remedy) if part]
        super().__init__(f"{status}: {'; '.join(said)}")

    @property
    def is_retryable(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in (429, 503)

    @staticmethod
    def of(response: httpx.Response) -> ProblemError:
        """Reads the problem of a refused request, whose body has been read."""
        try:
            members = response.json()
        except ValueError:
            members = {"detail": response.text[:500]}
        if not isinstance(members, dict):
            members = {"detail": response.text[:500]}
        kind = _BY_STATUS.get(response.status_code, ProblemError)
        return kind(response.status_code, members, _seconds(response.headers.get("retry-after")))


class InvalidError(ProblemError):
    """The request breaks a rule."""


class AuthenticationError(ProblemError):
    """Token or password are missing or wrong."""


class PermissionDeniedError(ProblemError):
    """The caller lacks a role, or the device may not send for another."""


class NotFoundError(ProblemError):
    """The request names something that does not exist."""


class ConflictError(ProblemError):
    """It exists already, or is in use."""


class PreconditionFailedError(ProblemError):
    """Somebody else has written in between; nothing was stored."""


class TooManyRequestsError(ProblemError):
    """A limit of the tenant, device or caller is reached."""


class UnavailableError(ProblemError):
    """The server has too much to do, or nobody listens for a command."""


_BY_STATUS: dict[int, type[ProblemError]] = {
    400: InvalidError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    413: InvalidError,
    422: InvalidError,
    429: TooManyRequestsError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header else None
    except ValueError:
        return None
