"""The face for asyncio: drives operations, listings and streams on an `httpx.AsyncClient`."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

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


class AsyncConnection:
    def __init__(self, settings: _connection.Settings) -> None:
        self.settings = settings
        self.http = httpx.AsyncClient(verify=settings.tls, limits=httpx.Limits(max_connections=None))

    async def run(self, operation: Call[T]) -> T:
        """Answers each request of an operation until it returns."""
        try:
            request = next(operation)
            while True:
                try:
                    response = await self.send(request)
                except MillstreamError as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(response)
        except StopIteration as returned:
            result: T = returned.value
            return result

    async def send(self, request: Request) -> httpx.Response:
        built = self.settings.build(request)
        try:
            response = await self.http.send(built)
        except httpx.RequestError as error:
            raise _connection.failed(error, built) from error
        if problem := _connection.refusal(response):
            raise problem
        return response

    async def open(self, request: Request) -> httpx.Response:
        built = self.settings.build(request, silence_max_s=_connection.SILENCE_MAX_S)
        try:
            response = await self.http.send(built, stream=True)
            if not response.is_success:
                await response.aread()
        except httpx.RequestError as error:
            raise _connection.failed(error, built) from error
        if problem := _connection.refusal(response):
            raise problem
        return response


class AsyncGroup:
    """A plane of the server, as an attribute of the client."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection


class AsyncPages(Generic[T]):
    """The items of all pages, asked for as they are needed."""

    def __init__(self, connection: AsyncConnection, listing: Listing[T]) -> None:
        self._connection = connection
        self._next: Callable[[], Call[Page[T]]] | None = listing.first
        self._row = listing.row
        self._ready: deque[T] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if self._next is None:
                raise StopAsyncIteration
            page = await self._connection.run(self._next())
            self._ready.extend(page.items)
            self._next = page.next
            if page.lost:
                raise page.lost
        return self._ready.popleft()

    async def to_frame(self) -> pd.DataFrame:
        """Reads to the end, into a frame of pandas."""
        return _frames.frame([self._row(item) async for item in self])


class AsyncStream(Generic[T]):
    """Items as they arrive. It opens with its `with` block, or with the first item; the end of the block closes it.

    A connection that breaks is made anew, and the stream goes on where it was. A wait for an item may be cancelled, as
    `asyncio.wait_for` does; nothing is lost.
    """

    def __init__(self, connection: AsyncConnection, subscription: Subscription[T]) -> None:
        self._connection = connection
        self._subscription = subscription
        self._ready: deque[tuple[T | MillstreamError, str | None]] = deque()
        self._response: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None
        self._reading: asyncio.Task[bytes] | None = None
        self._has_begun = False
        self.position: str | None = None
        """Behind the last item that was taken; a new stream can start there."""

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        await self._begin()
        while not self._ready:
            if self._subscription.has_ended:
                await self.close()
                raise StopAsyncIteration
            await self._advance()
        item, self.position = self._ready.popleft()
        if isinstance(item, MillstreamError):
            raise item
        return item

    async def to_frame(self, rows: int | None = None) -> pd.DataFrame:
        """Waits for so many items, or for the end, and puts them into a frame of pandas."""
        taken = await _frames.afirst(self, rows)
        return _frames.frame([self._subscription.row(item) for item in taken])

    async def close(self) -> None:
        """Closes the connection; a query that is not kept ends with it."""
        self._subscription.has_ended = True
        await self._disconnect()

    async def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        await self._connection.run(self._subscription.begin())
        self.position = self._subscription.position
        while not self._subscription.is_open and not self._subscription.has_ended:
            await self._advance()

    async def _advance(self) -> None:
        """Connects, or reads one piece of the body."""
        try:
            if self._response is None:
                self._response = await self._connection.open(self._subscription.request())
                self._pieces = self._response.aiter_bytes()
                self._subscription.connected(self._response)
                return
            self._ready.extend(self._subscription.feed(await self._read()))
        except MillstreamError as error:
            await self._disconnect()
            await asyncio.sleep(self._subscription.interrupted(error, self._connection.settings.reconnect_s))

    async def _read(self) -> bytes:
        assert self._response is not None, "a piece is read from an open connection"
        if self._reading is None:
            self._reading = asyncio.create_task(self._next_piece())
        # A cancelled read would break the connection, so it goes on, and the next call waits for it.
        await asyncio.wait([self._reading])
        reading, self._reading = self._reading, None
        try:
            return reading.result()
        except httpx.RequestError as error:
            raise _connection.failed(error, self._response.request) from error

    async def _next_piece(self) -> bytes:
        assert self._pieces is not None, "a piece is read from an open connection"
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            raise _connection.broken() from None

    async def _disconnect(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
        if self._response is not None:
            await self._response.aclose()
            self._response = None


def call(
    build: Callable[Concatenate[Scope, P], Call[T]],
) -> Callable[Concatenate[AsyncGroup, P], Coroutine[Any, Any, T]]:
    @functools.wraps(build)
    async def method(self: AsyncGroup, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._connection.run(build(self._connection.settings.scope, *args, **kwargs))

    return method


def pages(build: Callable[Concatenate[Scope, P], Listing[T]]) -> Callable[Concatenate[AsyncGroup, P], AsyncPages[T]]:
    @functools.wraps(build)
    def method(self: AsyncGroup, /, *args: P.args, **kwargs: P.kwargs) -> AsyncPages[T]:
        return AsyncPages(self._connection, build(self._connection.settings.scope, *args, **kwargs))

    return method


def stream(
    kind: Callable[[AsyncConnection, S], T], build: Callable[Concatenate[Scope, P], S]
) -> Callable[Concatenate[AsyncGroup, P], T]:
    @functools.wraps(build)
    def method(self: AsyncGroup, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._connection, build(self._connection.settings.scope, *args, **kwargs))

    return method
