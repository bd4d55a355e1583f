"""The types of the surface, which mypy checks, and the equality of both faces."""

from typing import Any, assert_type

import pandas as pd

from millstream import (
    Answer,
    AsyncClient,
    AsyncLiveQuery,
    AsyncPages,
    AsyncStream,
    Client,
    Command,
    Device,
    Item,
    LiveQuery,
    Pages,
    Point,
    Record,
    Stream,
    Value,
    Window,
)


def blocking(client: Client) -> None:
    assert_type(client.devices.get("a"), Device)
    assert_type(client.devices.list(), Pages[Device])
    assert_type(client.devices.send("a", {}, password="b"), Command | None)
    assert_type(client.entities.get("a"), dict[str, Any])
    assert_type(client.history.read("a").to_frame(), pd.DataFrame)
    assert_type(next(client.history.read("a")), Point)
    assert_type(client.queries.ask("a"), Answer)
    assert_type(client.queries.windows("a"), LiveQuery[Window])
    assert_type(client.streams.tail("a"), Stream[Record])
    assert_type(client.kv.get("a", "b"), Value)
    assert_type(client.kv.put("a", "b", b""), int)
    assert_type(client.kv.watch("a"), Stream[Item])
    client.devices.get()  # type: ignore[call-arg]
    client.devices.send("a", {}, "b")  # type: ignore[misc]
    client.kv.put("a", "b", b"", ack="never")  # type: ignore[arg-type]
    client.streams.tail("a", begin="latest")  # type: ignore[call-arg]


async def on_asyncio(client: AsyncClient) -> None:
    assert_type(await client.devices.get("a"), Device)
    assert_type(client.devices.list(), AsyncPages[Device])
    assert_type(await client.history.read("a").to_frame(), pd.DataFrame)
    assert_type(await client.queries.ask("a"), Answer)
    assert_type(client.queries.windows("a"), AsyncLiveQuery[Window])
    assert_type(client.streams.tail("a"), AsyncStream[Record])
    assert_type(await client.kv.put("a", "b", b""), int)
    async with client.kv.watch("a") as watch:
        async for item in watch:
            assert_type(item, Item)
    await client.devices.get(1)  # type: ignore[arg-type]


def test_both_faces_have_the_same_methods_with_their_descriptions() -> None:
    blocking, waiting = Client("http://127.0.0.1:1"), AsyncClient("http://127.0.0.1:1")
    for plane in ("devices", "entities", "history", "queries", "streams", "kv", "jobs"):
        groups = [type(getattr(client, plane)) for client in (blocking, waiting)]
        methods = [{name for name in vars(group) if not name.startswith("_")} for group in groups]
        assert methods[0] == methods[1] != set()
        for group in groups:
            assert all(getattr(group, name).__doc__ for name in methods[0])
    blocking.close()
