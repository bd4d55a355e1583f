"""Entities and their history."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from conftest import Face
from server import Server

from millstream import InvalidError, MillstreamError, NotFoundError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def test_an_entity_is_made_read_changed_and_deleted(face: Face, client: Any, name: str) -> None:
    room = {"id": name, "type": "Room", "temperature": 21.5, "tags": ["a"]}
    await face.done(client.entities.upsert(room))
    assert await face.done(client.entities.get(name)) == room
    await face.done(client.entities.update(name, {"temperature": {"$inc": 1}, "name": "kitchen"}))
    assert await face.done(client.entities.get(name, attrs=["temperature", "name"])) == {
        "id": name, "type": "Room", "temperature": 22.5, "name": "kitchen",
    }  # fmt: skip
    whole = await face.done(client.entities.get(name, type="Room", metadata=True))
    assert whole["name"] == {"type": "Text", "value": "kitchen", "metadata": {}}
    await face.done(client.entities.upsert({**whole, "name": {"value": "hall"}}, metadata=True))
    assert (await face.done(client.entities.get(name)))["name"] == "hall"
    await face.done(client.entities.delete(name, type="Room"))
    with pytest.raises(NotFoundError) as refused:
        await face.done(client.entities.get(name))
    assert (refused.value.status, refused.value.title, refused.value.type) == (404, "NotFound", "about:blank")
    assert name in refused.value.detail


async def test_entities_are_listed_over_several_pages_and_filtered(face: Face, client: Any, name: str) -> None:
    kind = name.replace("-", "")
    await face.done(client.entities.upsert(*({"id": f"{name}-{n}", "type": kind, "n": n} for n in range(1001))))
    listed = await face.all(client.entities.list(type=kind))
    assert [entity["n"] for entity in listed] == list(range(1001))
    some = await face.all(client.entities.list(type=kind, q="n<5;n!=3", attrs=["n"], order_by="!n"))
    assert [entity["n"] for entity in some] == [4, 2, 1, 0]
    assert [e["id"] for e in await face.all(client.entities.list(id_pattern=f"^{name}-7$"))] == [f"{name}-7"]
    frame = await face.done(client.entities.list(type=kind, q="n<3").to_frame())
    assert frame.to_dict("list") == {"id": [f"{name}-{n}" for n in range(3)], "type": [kind] * 3, "n": [0, 1, 2]}


async def test_an_entity_that_breaks_a_rule_is_refused(face: Face, client: Any, name: str) -> None:
    with pytest.raises(InvalidError, match="400"):
        await face.done(client.entities.upsert({"id": "a b", "type": "Room"}))
    with pytest.raises(InvalidError, match="is no operator"):
        await face.all(client.entities.list(q="n===1"))
    await face.done(client.entities.upsert({"id": name, "type": "Room", "name": "kitchen"}))
    with pytest.raises(InvalidError) as refused:
        await face.done(client.entities.update(name, {"name": {"$inc": 1}}))
    assert (refused.value.status, refused.value.title) == (422, "Unprocessable")
    with pytest.raises(NotFoundError):
        await face.done(client.entities.update(f"{name}-none", {"a": 1}))


async def values(face: Face, client: Any, name: str, count: int) -> None:
    """Gives an entity so many values of `temperature`, one a minute from noon."""
    for number in range(count):
        observed = (NOON + timedelta(minutes=number)).isoformat()
        metadata = {"TimeInstant": {"type": "DateTime", "value": observed}}
        attribute = {"value": 20.0 + number, "type": "Number", "metadata": metadata}
        await face.done(client.entities.upsert({"id": name, "type": "Room", "temperature": attribute}, metadata=True))


async def test_history_is_read_as_points_and_as_a_frame(face: Face, client: Any, name: str) -> None:
    await values(face, client, name, 5)
    points = await face.all(client.history.read(name, attrs=["temperature"]))
    assert [(point.value, point.observed_at) for point in points] == [
        (20.0 + number, NOON + timedelta(minutes=number)) for number in range(5)
    ]
    minute = timedelta(minutes=1)
    for options, expected in (
        ({"start": NOON + minute}, [21, 22, 23, 24]),
        ({"start": "2026-01-01T13:01:00+01:00", "until": "2026-01-01T12:03:00Z"}, [21, 22]),
        ({"until": NOON + 2 * minute}, [20, 21]),
        ({"start": NOON + minute, "until": NOON + 3 * minute}, [21, 22]),
        ({"last": 2}, [23, 24]),
        ({"id_pattern": name, "type": "Room", "last": 1}, [24]),
    ):
        where = {} if "id_pattern" in options else {"entity_id": name}
        points = await face.all(client.history.read(**where, **options))
        assert [point.value for point in points] == expected, options
    frame = await face.done(client.history.read(name).to_frame())
    assert list(frame.columns) == ["entity_id", "entity_type", "attribute", "observed_at", "value"]
    assert frame["value"].tolist() == [20, 21, 22, 23, 24]
    assert frame["observed_at"].iloc[0] == NOON


async def test_history_is_aggregated_and_deleted(face: Face, client: Any, name: str) -> None:
    await values(face, client, name, 4)
    [whole] = await face.all(client.history.aggregate(name, methods=["avg", "max", "totalCount"]))
    assert (whole["avg"], whole["max"], whole["totalCount"], whole["start"]) == (21.5, 23, 4, None)
    for period, start in (("PT2M", NOON), (timedelta(minutes=2), "2026-01-01T12:00:00Z")):
        aggregates = client.history.aggregate(name, methods=["min", "sum"], period=period, start=start)
        frame = await face.done(aggregates.to_frame())
        assert frame[["min", "sum"]].to_numpy().tolist() == [[20, 41], [22, 45]]
        assert frame["end"].tolist() == [NOON + timedelta(minutes=2), NOON + timedelta(minutes=4)]
    fine = await face.all(client.history.aggregate(name, period=timedelta(seconds=90, milliseconds=500), start=NOON))
    assert fine[0]["end"] == NOON + timedelta(seconds=90, milliseconds=500)
    with pytest.raises(ValueError, match="is no period"):
        await face.all(client.history.aggregate(name, period=timedelta()))
    await face.done(client.entities.delete(name))
    last = (await face.all(client.history.read(name)))[-1]
    assert (last.value, last.is_deleted) == (None, True)
    await face.done(client.history.delete(name, attribute="temperature"))
    with pytest.raises(NotFoundError) as refused:
        await face.all(client.history.read(name))
    assert refused.value.type.endswith("/ResourceNotFound")


async def test_long_history_is_read_in_several_answers(face: Face) -> None:
    server = Server("--set", "history.page_max_points=20")
    try:
        client = face.client(server)
        await values(face, client, "r", 50)
        await values(face, client, "s", 15)
        points = await face.all(client.history.read("r"))
        assert [point.value for point in points] == [20.0 + number for number in range(50)]
        within = {"start": NOON + timedelta(minutes=10), "until": NOON + timedelta(minutes=45)}
        points = await face.all(client.history.read(type="Room", **within))
        for entity, end in (("r", 45), ("s", 15)):
            of_entity = [point.value for point in points if point.entity_id == entity]
            assert of_entity == [20.0 + number for number in range(10, end)]
        with pytest.raises(MillstreamError, match="the last 15 points are more"):
            await face.all(client.history.read(type="Room", last=15))
        await face.done(client.close())
    finally:
        server.stop()


async def test_a_time_without_zone_is_refused(face: Face, client: Any, name: str) -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        await face.all(client.history.read(name, start=datetime(2026, 1, 1)))
    with pytest.raises(ValueError, match="has no time zone"):
        await face.all(client.history.read(name, start="2026-01-01T00:00:00"))
