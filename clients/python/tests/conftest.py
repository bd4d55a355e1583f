"""Both faces of the client as one fixture, over one server for all tests."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from server import Server

from millstream import AsyncClient, Client

NAMES = itertools.count(1)
# Every server is on this machine.
os.environ["NO_PROXY"] = "*"


class Face:
    """A client of either kind, whose results are awaited and iterated in one way."""

    def __init__(self, kind: type[Client] | type[AsyncClient]) -> None:
        self.kind = kind

    def client(self, server: Server, **options: Any) -> Any:
        options = {"devices_url": server.devices_url, **options}
        return self.kind(options.pop("url", server.url), **options)

    @staticmethod
    async def done(result: Any) -> Any:
        """The result of a call."""
        return await result if inspect.isawaitable(result) else result

    @staticmethod
    async def each(items: Any) -> AsyncIterator[Any]:
        if hasattr(items, "__aiter__"):
            async for item in items:
                yield item
        else:
            for item in items:
                yield item

    async def all(self, items: Any) -> list[Any]:
        return [item async for item in self.each(items)]

    async def next(self, items: Any) -> Any:
        return await anext(items) if hasattr(items, "__anext__") else next(items)

    @asynccontextmanager
    async def opened(self, stream: Any) -> AsyncIterator[Any]:
        if hasattr(stream, "__aenter__"):
            async with stream as opened:
                yield opened
        else:
            with stream as opened:
                yield opened


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Face:
    return Face(request.param)


@pytest.fixture
async def client(face: Face, server: Server) -> AsyncIterator[Any]:
    client = face.client(server)
    yield client
    await face.done(client.close())


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"python-{next(NAMES)}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The line that the gate adds up."""
    count = {kind: len(terminalreporter.stats.get(kind, ())) for kind in ("passed", "failed", "error", "skipped")}
    print(f"\n{count['passed']} passed, {count['failed'] + count['error']} failed, {count['skipped']} skipped")
