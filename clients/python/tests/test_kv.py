"""Keys and values."""

import json
from typing import Any

import httpx
import pytest
from conftest import Face
from server import Relay, Server

from millstream import Client, NotFoundError, PreconditionFailedError


async def test_a_bucket_is_made_described_listed_and_deleted(face: Face, client: Any, name: str) -> None:
    made = await face.done(client.kv.make_bucket(name, partitions=1, max_keys=10))
    assert made["settings"]["max_keys"] == 10
    assert (await face.done(client.kv.bucket(name)))["keys"] == 0
    assert name in [bucket["name"] for bucket in await face.done(client.kv.buckets())]
    await face.done(client.kv.delete_bucket(name))
    with pytest.raises(NotFoundError, match="a bucket is made before it is used"):
        await face.done(client.kv.get(name, "key"))


async def test_a_value_is_put_read_and_deleted_with_what_belongs_to_it(face: Face, client: Any, name: str) -> None:
    await face.done(client.kv.make_bucket(name, partitions=1))
    first = await face.done(
        client.kv.put(name, "users/ann", {"name": "Ann"}, tags=["vip", "eu"], metadata={"owner": "web"}, ttl_s=1800)
    )
    value = await face.done(client.kv.get(name, "users/ann"))
    assert (value.json(), value.version, value.tags, value.metadata) == (
        {"name": "Ann"}, first, ["vip", "eu"], {"owner": "web"},
    )  # fmt: skip
    assert value.content_type == "application/json"
    assert value.expires is not None
    second = await face.done(client.kv.put(name, "users/ann", "Ann", ack="memory", if_version=first))
    assert second > first
    with pytest.raises(PreconditionFailedError) as refused:
        await face.done(client.kv.put(name, "users/ann", "Eve", if_version=first))
    assert refused.value.members["version"] == second
    with pytest.raises(PreconditionFailedError):
        await face.done(client.kv.put(name, "users/ann", "Eve", if_absent=True))
    value = await face.done(client.kv.get(name, "users/ann"))
    assert (value.text(), value.tags, value.metadata, value.expires) == ("Ann", [], {}, None)
    with pytest.raises(PreconditionFailedError):
        await face.done(client.kv.delete(name, "users/ann", if_version=first))
    await face.done(client.kv.delete(name, "users/ann", if_version=second))
    for call in (client.kv.get, client.kv.delete):
        with pytest.raises(NotFoundError, match="there is no key"):
            await face.done(call(name, "users/ann"))


KEYS = ["_bulk", "a/../b", "a//b", "a+b&c=d", "q?x#y", "x/", ".", "..", "%2F", "é ü", b"\xfe\xff"]


async def test_any_key_is_a_key(face: Face, client: Any, name: str) -> None:
    await face.done(client.kv.make_bucket(name, partitions=1))
    for number, key in enumerate(KEYS):
        await face.done(client.kv.put(name, key, str(number), if_absent=True))
    for number, key in enumerate(KEYS):
        assert (await face.done(client.kv.get(name, key))).text() == str(number), key
    listed = {item.key: item.data for item in await face.all(client.kv.list(name, values=True))}
    assert listed == {key: str(number).encode() for number, key in enumerate(KEYS)}
    for key in KEYS:
        [item] = [item for item in await face.all(client.kv.list(name, key)) if item.key == key]
        assert item.data is None
        await face.done(client.kv.delete(name, key))
    assert await face.all(client.kv.list(name)) == []


async def test_keys_are_listed_over_several_pages(face: Face, client: Any, server: Server, name: str) -> None:
    await face.done(client.kv.make_bucket(name, partitions=1, ack="memory"))
    puts = [{"op": "put", "key": f"a/{number:04}", "value": ""} for number in range(1100)]
    lines = "\n".join(json.dumps(put) for put in puts)
    httpx.post(f"{server.url}/kv/{name}/_bulk", content=lines, timeout=60).raise_for_status()
    await face.done(client.kv.put(name, "b", "last"))
    items = await face.all(client.kv.list(name, "a/"))
    assert [item.key for item in items] == [f"a/{number:04}" for number in range(1100)]
    assert [item.key for item in await face.all(client.kv.list(name, start="a/1099"))] == ["a/1099", "b"]
    frame = await face.done(client.kv.list(name, start="a/1098", values=True).to_frame())
    assert frame[["key", "value"]].to_numpy().tolist() == [["a/1098", ""], ["a/1099", ""], ["b", "last"]]


async def test_a_watch_gives_changes_and_goes_on_where_it_was_cut(face: Face, server: Server, name: str) -> None:
    with Relay(server.addresses["applications"]) as relay, Client(server.url) as other:
        client = face.client(server, url=relay.url)
        other.kv.make_bucket(name, partitions=1)
        other.kv.put(name, "parts/old", "1")
        async with face.opened(client.kv.watch(name, "parts/", values=True)) as watch:
            relay.cut()
            other.kv.put(name, "others/nut", "2")
            version = other.kv.put(name, "parts/nut", "3")
            change = await face.next(watch)
            assert (change.kind, change.key, change.version, change.data) == ("put", "parts/nut", version, b"3")
            position = watch.position
            relay.cut()
            other.kv.delete(name, "parts/nut")
            change = await face.next(watch)
            assert (change.kind, change.key, change.data) == ("delete", "parts/nut", None)
        async with face.opened(client.kv.watch(name, start=position)) as watch:
            assert (await face.next(watch)).kind == "delete"
        async with face.opened(client.kv.watch(name, start="earliest")) as watch:
            assert (await face.next(watch)).key == "parts/old"
        await face.done(client.close())
