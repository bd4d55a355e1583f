"""Pages of a listing and events of a stream, as both faces drive them. No I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from ._request import Call, Request, T
from .errors import (
    ConnectionFailed,
    MillstreamError,
    ProblemError,
    StreamFailed,
    TooManyRequestsError,
    UnavailableError,
)

if TYPE_CHECKING:
    import httpx

Row = Callable[[T], Mapping[str, Any]]


@dataclass(slots=True)
class Page(Generic[T]):
    """Some items, and how to ask for those behind them; `lost` is raised before them."""

    items: Iterable[T]
    next: Callable[[], Call[Page[T]]] | None = None
    lost: MillstreamError | None = None


@dataclass(slots=True)
class Listing(Generic[T]):
    """The first page, and how an item becomes the row of a frame."""

    first: Callable[[], Call[Page[T]]]
    row: Row[T]


@dataclass(slots=True)
class Event:
    name: str
    id: str | None
    data: str

    def json(self) -> Any:
        return json.loads(self.data)


@dataclass(slots=True)
class EventParser:
    """Cuts server-sent events out of the pieces of a body."""

    rest: bytes = b""
    name: str = "message"
    id: str | None = None
    data: list[str] = field(default_factory=list)

    def feed(self, piece: bytes) -> Iterator[Event]:
        # The server ends lines by \n.
        *lines, self.rest = (self.rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.decode().rstrip("\r").partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self.data.append(value)
            elif name == "event":
                self.name = value
            elif name == "id":
                self.id = value
            elif not line.strip() and self.data:
                yield Event(self.name, self.id, "\n".join(self.data))
                self.name, self.id, self.data = "message", None, []


class Subscription(Generic[T]):
    """The state of a stream: the next request, the meaning of events, and the decision to connect anew.

    A plane overrides `begin`, `request` and `take`. The position is the id of the last event; a new connection sends it
    as `Last-Event-ID`, so that nothing is missed or repeated.
    """

    row: Row[T]
    # True if the stream is open only after its first event.
    opens_with_event = False

    def __init__(self) -> None:
        self.position: str | None = None
        self.has_ended = False
        self.is_open = False
        self._parser = EventParser()
        self._connected_at: float | None = None
        self._stalled_since: float | None = None
        self._attempts = 0

    def begin(self) -> Call[None]:
        """Requests before the first connection, such as for the position to start at."""
        yield from ()

    def request(self) -> Request:
        """The request of the next connection."""
        raise NotImplementedError

    def take(self, event: Event) -> Iterable[T | MillstreamError]:
        """The items that an event holds; an exception stands where the iterator raises it."""
        raise NotImplementedError

    def can_resume(self) -> bool:
        return True

    def resume_headers(self) -> dict[str, str]:
        accept = {"Accept": "text/event-stream"}
        return {**accept, "Last-Event-ID": self.position} if self.position else accept

    def connected(self, response: httpx.Response) -> None:
        self._parser = EventParser()
        self._connected_at = time.monotonic()
        if response.status_code == NO_CONTENT:
            self.has_ended = True
        self.is_open = self.is_open or not self.opens_with_event

    def feed(self, piece: bytes) -> Iterator[tuple[T | MillstreamError, str | None]]:
        """The items of a piece of the body, each with the position behind it."""
        for event in self._parser.feed(piece):
            if event.name == "failed":
                raise StreamFailed(event.json()["cause"])
            self._stalled_since, self._attempts, self.is_open = None, 0, True
            items = self.take(event)
            self.position = event.id or self.position
            for item in items:
                yield item, self.position
            if event.name == "end":
                self.has_ended = True

    def interrupted(self, error: MillstreamError, patience_s: float) -> float:
        """Returns the seconds to wait before the next connection; raises `error` if there is none."""
        now = time.monotonic()
        if self._connected_at is not None and now - self._connected_at > STABLE_S:
            self._stalled_since, self._attempts = None, 0
        self._connected_at = None
        self._stalled_since = self._stalled_since or now
        self._attempts += 1
        is_over = now - self._stalled_since >= patience_s
        if is_over or not self.is_open or not self.can_resume() or not may_pass(error):
            raise error
        asked_s = error.retry_after_s if isinstance(error, ProblemError) else None
        return min(asked_s or PAUSE_S * 2**self._attempts, PAUSE_MAX_S)


def may_pass(error: MillstreamError) -> bool:
    """True if the reason for a broken stream may be gone at the next attempt."""
    return isinstance(error, ConnectionFailed | StreamFailed | TooManyRequestsError | UnavailableError)


NO_CONTENT = 204
# A connection that held so long is no part of an earlier interruption.
STABLE_S = 5.0
PAUSE_S = 0.025
PAUSE_MAX_S = 2.0
