"""The client, blocking and for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from . import _async, _sync
from ._connection import Settings
from .devices import AsyncDevices, Devices
from .entities import AsyncEntities, Entities
from .history import AsyncHistory, History
from .jobs import AsyncJobs, Jobs
from .kv import AsyncKeys, Keys
from .queries import AsyncQueries, Queries
from .streams import AsyncStreams, Streams

if TYPE_CHECKING:
    from types import TracebackType


class Client:
    """A server, for programs that wait for its answers. It is safe to share between threads, and closes its connections
    with `close` or at the end of a `with` block.

    `url` is the listener of applications, `token` an API token of it. `tenant` is chosen by the token, or is `default`,
    if it is left out. `ca` is a file of authorities in PEM for `https`. Devices send to `devices_url`: port 8080 of the
    same host unless it is given. An answer may take `timeout_s`; a broken stream is made anew for `reconnect_s`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tenant: str | None = None,
        ca: str | None = None,
        *,
        devices_url: str | None = None,
        timeout_s: float = 30.0,
        reconnect_s: float = 60.0,
    ) -> None:
        settings = Settings.of(url, token, tenant, ca, devices_url, timeout_s, reconnect_s)
        self._connection = _sync.Connection(settings)
        self.devices = Devices(self._connection)
        self.entities = Entities(self._connection)
        self.history = History(self._connection)
        self.queries = Queries(self._connection)
        self.streams = Streams(self._connection)
        self.kv = Keys(self._connection)
        self.jobs = Jobs(self._connection)

    def __repr__(self) -> str:
        return f"Client({self._connection.settings.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.http.close()


class AsyncClient:
    """A server, for programs on asyncio: `Client` with `await`, `async for` and `async with`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tenant: str | None = None,
        ca: str | None = None,
        *,
        devices_url: str | None = None,
        timeout_s: float = 30.0,
        reconnect_s: float = 60.0,
    ) -> None:
        settings = Settings.of(url, token, tenant, ca, devices_url, timeout_s, reconnect_s)
        self._connection = _async.AsyncConnection(settings)
        self.devices = AsyncDevices(self._connection)
        self.entities = AsyncEntities(self._connection)
        self.history = AsyncHistory(self._connection)
        self.queries = AsyncQueries(self._connection)
        self.streams = AsyncStreams(self._connection)
        self.kv = AsyncKeys(self._connection)
        self.jobs = AsyncJobs(self._connection)

    def __repr__(self) -> str:
        return f"AsyncClient({self._connection.settings.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.http.aclose()
