"""The blocking face: drives operations, listings and streams on an `httpx.Client`."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, Self, TypeVar

import httpx

from . import _connection, _frames
from ._listing import Listing, Subscription
from .errors import MillstreamError

if TYPE_CHECKING:
    from types import TracebackType

    import pandas as pd

    from ._listing import Page
    from ._request import Call, Request, Scope

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


class Connection:
    def __init__(self, settings: _connection.Settings) -> None:
        self.settings = settings
        self.http = httpx.Client(verify=settings.tls, limits=httpx.Limits(max_connections=None))

    def run(self, operation: Call[T]) -> T:
        """Answers each request of an operation until it returns."""
        try:
            request = next(operation)
            while True:
                try:
                    response = self.send(request)
                except MillstreamError as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(response)
        except StopIteration as returned:
            result: T = returned.value
            return result

    def send(self, request: Request) -> httpx.Response:
        built = self.settings.build(request)
        try:
            response = self.http.send(built)
        except httpx.RequestError as error:
            raise _connection.failed(error, built) from error
        if problem := _connection.refusal(response):
            raise problem
        return response

    def open(self, request: Request) -> httpx.Response:
        built = self.settings.build(request, silence_max_s=_connection.SILENCE_MAX_S)
        try:
            response = self.http.send(built, stream=True)
            if not response.is_success:
                response.read()
        except httpx.RequestError as error:
            raise _connection.failed(error, built) from error
        if problem := _connection.refusal(response):
            raise problem
        return response


class Group:
    """A plane of the server, as an attribute of the client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


class Pages(Generic[T]):
    """The items of all pages, asked for as they are needed."""

    def __init__(self, connection: Connection, listing: Listing[T]) -> None:
        self._connection = connection
        self._next: Callable[[], Call[Page[T]]] | None = listing.first
        self._row = listing.row
        self._ready: deque[T] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._ready:
            if self._next is None:
                raise StopIteration
            page = self._connection.run(self._next())
            self._ready.extend(page.items)
            self._next = page.next
            if page.lost:
                raise page.lost
        return self._ready.popleft()

    def to_frame(self) -> pd.DataFrame:
        """Reads to the end, into a frame of pandas."""
        return _frames.frame([self._row(item) for item in self])


class Stream(Generic[T]):
    """Items as they arrive. It opens with its `with` block, or with the first item; the end of the block closes it.

    A connection that breaks is made anew, and the stream goes on where it was.
    """

    def __init__(self, connection: Connection, subscription: Subscription[T]) -> None:
        self._connection = connection
        self._subscription = subscription
        self._ready: deque[tuple[T | MillstreamError, str | None]] = deque()
        self._response: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._has_begun = False
        self.position: str | None = None
        """Behind the last item that was taken; a new stream can start there."""

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        self._begin()
        while not self._ready:
            if self._subscription.has_ended:
                self.close()
                raise StopIteration
            self._advance()
        item, self.position = self._ready.popleft()
        if isinstance(item, MillstreamError):
            raise item
        return item

    def to_frame(self, rows: int | None = None) -> pd.DataFrame:
        """Waits for so many items, or for the end, and puts them into a frame of pandas."""
        taken = _frames.first(self, rows)
        return _frames.frame([self._subscription.row(item) for item in taken])

    def close(self) -> None:
        """Closes the connection; a query that is not kept ends with it."""
        self._subscription.has_ended = True
        self._disconnect()

    def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        self._connection.run(self._subscription.begin())
        self.position = self._subscription.position
        while not self._subscription.is_open and not self._subscription.has_ended:
            self._advance()

    def _advance(self) -> None:
        """Connects, or reads one piece of the body."""
        try:
            if self._response is None:
                self._response = self._connection.open(self._subscription.request())
                self._pieces = self._response.iter_bytes()
                self._subscription.connected(self._response)
                return
            self._ready.extend(self._subscription.feed(self._read()))
        except MillstreamError as error:
            self._disconnect()
            time.sleep(self._subscription.interrupted(error, self._connection.settings.reconnect_s))

    def _read(self) -> bytes:
        assert self._response is not None, "a piece is read from an open connection"
        try:
            return next(self._pieces)
        except StopIteration:
            raise _connection.broken() from None
        except httpx.RequestError as error:
            raise _connection.failed(error, self._response.request) from error

    def _disconnect(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None


def call(build: Callable[Concatenate[Scope, P], Call[T]]) -> Callable[Concatenate[Group, P], T]:
    @functools.wraps(build)
    def method(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._connection.run(build(self._connection.settings.scope, *args, **kwargs))

    return method


def pages(build: Callable[Concatenate[Scope, P], Listing[T]]) -> Callable[Concatenate[Group, P], Pages[T]]:
    @functools.wraps(build)
    def method(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> Pages[T]:
        return Pages(self._connection, build(self._connection.settings.scope, *args, **kwargs))

    return method


def stream(
    kind: Callable[[Connection, S], T], build: Callable[Concatenate[Scope, P], S]
) -> Callable[Concatenate[Group, P], T]:
    @functools.wraps(build)
    def method(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._connection, build(self._connection.settings.scope, *args, **kwargs))

    return method
