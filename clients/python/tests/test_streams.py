"""Streams: append, read, tail."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from conftest import Face
from server import Relay, Server

from millstream import Client, ConnectionFailed, InvalidError, NotFoundError, Record, RecordsLost, Text


async def test_a_stream_is_made_described_listed_and_deleted(face: Face, client: Any, name: str) -> None:
    made = await face.done(client.streams.create(name, partitions=2, retention="12h"))
    assert made["config"]["retention"] == "12h"
    info = await face.done(client.streams.info(name))
    assert [partition["tail"] for partition in info["partitions"]] == [0, 0]
    assert name in [stream["name"] for stream in await face.done(client.streams.list())]
    await face.done(client.streams.delete(name))
    with pytest.raises(NotFoundError, match="a topic is created before it is used"):
        await face.done(client.streams.info(name))


async def test_what_was_read_can_be_appended_as_it_is(face: Face, client: Any, name: str) -> None:
    for stream in (name, f"{name}-copy"):
        await face.done(client.streams.create(stream, partitions=1, level="written"))
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    first = Record(key="o-1", value={"item": "bolt", "count": 7}, headers={"source": "shop"}, timestamp=moment)
    records: list[Any] = [
        first,
        Record(key=b"\xff", value=b"\x00\xff"),
        Record(value=Text("plain text")),
        Record(value="a text in JSON"),
        Record(key="o-1", value=None),
        {"item": "a value by itself"},
    ]
    appended = await face.done(client.streams.append(name, records, ack="written"))
    assert (appended.count, appended.ack, appended.offsets) == (6, "written", {0: (0, 5)})
    read = await face.all(client.streams.read(name))
    assert read[0] == replace(first, partition=0, offset=0)
    expected = [first.value, b"\x00\xff", "plain text", "a text in JSON", None, {"item": "a value by itself"}]
    assert [record.value for record in read] == expected
    assert [isinstance(record.value, Text) for record in read] == [False, False, True, False, False, False]
    assert [record.key for record in read] == ["o-1", b"\xff", None, None, "o-1", None]
    await face.done(client.streams.append(f"{name}-copy", read))
    assert await face.all(client.streams.read(f"{name}-copy")) == read


async def test_reading_goes_over_pages_filters_and_ends_where_the_stream_was(
    face: Face, client: Any, name: str
) -> None:
    await face.done(client.streams.create(name, partitions=2, level="memory"))
    records = [Record(key=f"k{n % 10}", value={"n": n}, headers={"odd": str(n % 2)}) for n in range(2500)]
    await face.done(client.streams.append(name, records))
    reading = client.streams.read(name)
    first = await face.next(reading)
    await face.done(client.streams.append(name, [{"n": "late"}]))
    rest = await face.all(reading)
    assert sorted(record.value["n"] for record in [first, *rest]) == list(range(2500))
    for options, count in (
        ({"key": "k1"}, 250), ({"key": "k*", "headers": {"odd": "1"}}, 1250), ({"until": "0:7,1:4"}, 11),
        ({"start": "latest"}, 0), ({"start": datetime(2020, 1, 1, tzinfo=UTC), "partitions": [1], "until": "1:5"}, 5),
    ):  # fmt: skip
        assert len(await face.all(client.streams.read(name, **options))) == count, options
    frame = await face.done(client.streams.read(name, key="k1").to_frame())
    assert list(frame.columns) == ["$partition", "$offset", "$timestamp", "$key", "n"]
    assert frame["n"].sum() == sum(range(1, 2500, 10))


async def test_a_bad_record_is_refused_with_its_line(face: Face, client: Any, name: str) -> None:
    await face.done(client.streams.create(name, partitions=1))
    with pytest.raises(InvalidError, match="line 2") as refused:
        await face.done(client.streams.append(name, [{"a": 1}, Record(value=1, partition=7)]))
    assert refused.value.status == 400
    assert refused.value.remedy
    assert not refused.value.is_retryable
    with pytest.raises(ValueError, match="not JSON compliant"):
        await face.done(client.streams.append(name, [{"a": float("nan")}]))
    with pytest.raises(TypeError, match="has no form in JSON"):
        await face.done(client.streams.append(name, [{"a": object()}]))
    assert await face.all(client.streams.read(name)) == []


async def test_a_tail_gives_what_is_appended_after_it_opened(face: Face, client: Any, name: str) -> None:
    await face.done(client.streams.create(name, partitions=2))
    await face.done(client.streams.append(name, [{"n": "before"}]))
    async with face.opened(client.streams.tail(name)) as tail:
        await face.done(client.streams.append(name, [Record(key=str(n), value={"n": n}) for n in range(10)]))
        seen = [(await face.next(tail)).value["n"] for _ in range(10)]
        assert sorted(seen) == list(range(10))
    async with face.opened(client.streams.tail(name, start="earliest", key="3")) as tail:
        assert (await face.next(tail)).value == {"n": 3}
    frame = await face.done(client.streams.tail(name, start="earliest").to_frame(11))
    assert len(frame) == 11


async def test_a_tail_goes_on_where_its_connection_was_cut(face: Face, server: Server, name: str) -> None:
    with Relay(server.addresses["applications"]) as relay, Client(server.url) as other:
        client = face.client(server, url=relay.url)
        other.streams.create(name, partitions=1)
        async with face.opened(client.streams.tail(name)) as tail:
            # Nothing has been received yet: only the position at which it opened says where to go on.
            relay.cut()
            other.streams.append(name, [{"n": 0}, {"n": 1}, {"n": 2}])
            assert [(await face.next(tail)).value["n"] for _ in range(2)] == [0, 1]
            before = relay.connections
            position = tail.position
            relay.cut()
            other.streams.append(name, [{"n": 3}])
            assert [(await face.next(tail)).value["n"] for _ in range(2)] == [2, 3]
            assert relay.connections > before
        async with face.opened(client.streams.tail(name, start=position)) as tail:
            assert [(await face.next(tail)).value["n"] for _ in range(2)] == [2, 3]
        await face.done(client.close())


async def test_a_tail_goes_on_after_a_restart_of_the_server(face: Face) -> None:
    server = Server()
    try:
        client = face.client(server)
        await face.done(client.streams.create("readings", partitions=1))
        async with face.opened(client.streams.tail("readings")) as tail:
            await face.done(client.streams.append("readings", [{"n": 1}]))
            assert (await face.next(tail)).value == {"n": 1}
            server.restart()
            await face.done(client.streams.append("readings", [{"n": 2}]))
            assert (await face.next(tail)).value == {"n": 2}
        await face.done(client.close())
    finally:
        server.stop()


async def test_a_tail_gives_up_when_the_server_stays_away(face: Face) -> None:
    server = Server()
    try:
        client = face.client(server, reconnect_s=0.2)
        await face.done(client.streams.create("readings", partitions=1))
        async with face.opened(client.streams.tail("readings")) as tail:
            server.kill()
            with pytest.raises(ConnectionFailed):
                await face.next(tail)
        with pytest.raises(ConnectionFailed):
            await face.done(client.streams.list())
        with pytest.raises(ConnectionFailed):
            await face.next(client.streams.tail("readings", start="earliest"))
        await face.done(client.close())
    finally:
        server.stop()


async def test_a_tail_of_a_stream_that_is_deleted_ends_with_the_reason(face: Face, client: Any, name: str) -> None:
    await face.done(client.streams.create(name, partitions=1))
    with pytest.raises(NotFoundError):
        await face.next(client.streams.tail(f"{name}-none"))
    async with face.opened(client.streams.tail(name)) as tail:
        await face.done(client.streams.delete(name))
        with pytest.raises(NotFoundError):
            await face.next(tail)


async def test_records_that_are_gone_are_told_of_before_those_behind_them(face: Face, client: Any, name: str) -> None:
    await face.done(client.streams.create(name, partitions=1, segment_bytes="1MiB", retention_bytes="1MiB"))
    for number in range(12):
        await face.done(client.streams.append(name, [{"n": number, "large": "x" * 500_000}]))
    # All but the newest segment go, perhaps that one as well.
    while (await face.done(client.streams.info(name)))["partitions"][0]["first"] == 0:
        await asyncio.sleep(0.1)
    await face.done(client.streams.append(name, [{"n": 12}]))
    for reading in (client.streams.read(name, start="0:0"), client.streams.tail(name, start="0:0")):
        lost, read = 0, [0]
        while read[-1] != 12:
            try:
                read.append((await face.next(reading)).value["n"])
            except RecordsLost:
                lost += 1
        assert lost >= 1
        assert read[1] > 0
        if hasattr(reading, "close"):
            await face.done(reading.close())
