"""Live queries."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from conftest import Face
from server import Relay, Server

from millstream import AsyncClient, Client, ConnectionFailed, InvalidError, NotFoundError, QueryFailed


async def stream_of(face: Face, client: Any, name: str, count: int = 0) -> str:
    await face.done(client.streams.create(name, partitions=1, level="written"))
    if count:
        await face.done(client.streams.append(name, [{"n": n, "odd": n % 2 == 1} for n in range(count)]))
    return f'FROM "{name}"'


async def test_a_query_of_what_is_there_is_one_answer(face: Face, client: Any, name: str) -> None:
    source = await stream_of(face, client, name, 10)
    answer = await face.done(client.queries.ask(f"SELECT n {source} WHERE odd", start="earliest"))
    assert answer.rows == [{"n": n} for n in (1, 3, 5, 7, 9)]
    assert (answer.meta["cause"], answer.meta["records_seen"]) == ("until", 10)
    assert answer.to_frame()["n"].sum() == 25
    for options, count in (
        ({"start": "earliest", "limit": 3}, 3), ({"start": {0: 4}, "until": {0: 6}}, 2),
        ({"start": datetime(2020, 1, 1, tzinfo=UTC), "until": "now"}, 10), ({"duration_s": 0.2}, 0),
    ):  # fmt: skip
        answer = await face.done(client.queries.ask(f"SELECT n {source}", **options))
        assert len(answer.rows) == count, options


async def test_a_live_query_gives_rows_that_are_sent_afterwards(face: Face, client: Any, name: str) -> None:
    source = await stream_of(face, client, name, 5)
    async with face.opened(client.queries.live(f"SELECT n {source} WHERE n > 100 LIMIT 3")) as rows:
        assert rows.columns == ["n"]
        assert (await face.done(client.queries.get(rows.id)))["stream"] == name
        assert rows.id in [query["id"] for query in await face.all(client.queries.list())]
        await face.done(client.streams.append(name, [{"n": 1}, {"n": 101}]))
        assert await face.next(rows) == {"n": 101}
        await face.done(client.streams.append(name, [{"n": 102}, {"n": 103}, {"n": 104}]))
        assert await face.all(rows) == [{"n": 102}, {"n": 103}]
        assert rows.meta["cause"] == "size"
    frame = await face.done(client.queries.live(f"SELECT * {source}", start="earliest", until="never").to_frame(5))
    assert frame["n"].tolist() == [0, 1, 2, 3, 4]


async def test_a_wait_for_a_row_may_be_cancelled(server: Server, name: str) -> None:
    async with AsyncClient(server.url) as client:
        await client.streams.create(name, partitions=1)
        async with client.queries.live(f'SELECT n FROM "{name}"') as rows:
            for n in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(rows), 0.1)
                await client.streams.append(name, [{"n": n}])
                assert await anext(rows) == {"n": n}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(rows), 0.1)


async def test_the_end_of_the_block_ends_a_query(face: Face, client: Any, name: str) -> None:
    source = await stream_of(face, client, name)
    async with face.opened(client.queries.live(f"SELECT n {source}")) as rows:
        query = rows.id
    # The server notices that the client has left.
    with contextlib.suppress(NotFoundError):
        while await face.done(client.queries.get(query)):
            pass
    assert await face.all(rows) == []


async def test_windows_come_with_their_rows(face: Face, client: Any, name: str) -> None:
    source = await stream_of(face, client, name)
    query = f"SELECT odd, COUNT(*) AS count {source} GROUP BY odd ORDER BY count WINDOWING TUMBLING(3, RECORD)"
    async with face.opened(client.queries.windows(query)) as windows:
        await face.done(client.streams.append(name, [{"odd": True}, {"odd": False}, {"odd": True}] * 2))
        first, second = await face.next(windows), await face.next(windows)
        assert [window.number for window in (first, second)] == [1, 2]
        assert first.rows == [{"odd": False, "count": 1}, {"odd": True, "count": 2}]
        assert second.to_frame()["count"].tolist() == [1, 2]
        await face.done(client.queries.end(windows.id))
        last = await face.all(windows)
        assert windows.meta["cause"] == "killed"
        assert all(window.rows == [] for window in last)
    window = await face.next(client.queries.windows(f"SELECT COUNT(*) AS count {source}", start="earliest"))
    assert (window.number, window.rows) == (None, [{"count": 6}])


async def test_a_query_that_is_wrong_is_refused_with_its_place(face: Face, client: Any, name: str) -> None:
    source = await stream_of(face, client, name, 1)
    for ask in (client.queries.ask, client.queries.validate):
        with pytest.raises(InvalidError, match="did you mean FROM") as refused:
            await face.done(ask("SELECT * FORM STREAM()"))
        assert refused.value.members["errors"][0]["column"] == 10
    with pytest.raises(InvalidError):
        await face.next(client.queries.live("SELECT * FORM STREAM()"))
    assert await face.done(client.queries.validate(f"SELECT odd {source}")) == []
    [hint] = await face.done(client.queries.validate(f"SELECT od {source}"))
    assert hint["suggestion"] == "odd"


async def test_a_query_that_is_not_kept_ends_with_its_connection(face: Face, server: Server, name: str) -> None:
    with Relay(server.addresses["applications"]) as relay, Client(server.url) as other:
        other.streams.create(name, partitions=1)
        client = face.client(server, url=relay.url)
        async with face.opened(client.queries.live(f'SELECT n FROM "{name}"')) as rows:
            relay.cut()
            with pytest.raises(ConnectionFailed):
                await face.next(rows)
        await face.done(client.close())


async def test_a_kept_query_goes_on_over_cut_connections_and_a_restart(face: Face) -> None:
    server = Server("--set", "query.keep_every_ms=100")
    with contextlib.ExitStack() as ends:
        ends.callback(server.stop)
        relay = ends.enter_context(Relay(server.addresses["applications"]))
        other = ends.enter_context(Client(server.url))
        client = face.client(server, url=relay.url)
        other.streams.create("readings", partitions=1)
        async with face.opened(client.queries.live('SELECT n FROM "readings"', keep=True)) as rows:
            query = rows.id
            other.streams.append("readings", [{"n": 1}])
            assert await face.next(rows) == {"n": 1}
            relay.cut()
            other.streams.append("readings", [{"n": 2}])
            assert await face.next(rows) == {"n": 2}
            server.restart()
            relay.cut()
            other.streams.append("readings", [{"n": 3}])
            # At least once after a crash: rows since the query was written down come again.
            seen = [await face.next(rows)]
            while seen[-1] != {"n": 3}:
                seen.append(await face.next(rows))
            position = rows.position
        other.streams.append("readings", [{"n": 4}])
        async with face.opened(client.queries.attach(query, after=position)) as rows:
            assert await face.next(rows) == {"n": 4}
            await face.done(client.queries.end(query))
            assert await face.all(rows) == []
            assert rows.meta["cause"] == "killed"
        await face.done(client.close())


async def test_a_query_whose_stream_is_deleted_fails_with_the_reason(face: Face, client: Any, name: str) -> None:
    source = await stream_of(face, client, name)
    async with face.opened(client.queries.live(f"SELECT n {source}")) as rows:
        await face.done(client.streams.delete(name))
        with pytest.raises(QueryFailed) as failed:
            await face.next(rows)
        assert failed.value.cause == "error"
        assert str(failed.value) != "the query ended with cause 'error': no reason given"
