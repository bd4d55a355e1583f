"""Stream jobs."""

from typing import Any

import pytest
from conftest import Face

from millstream import ConflictError, InvalidError, NotFoundError, Record

DOCUMENT = """
version: 1
kind: Job
name: NAME
sources:
  readings: { type: stream, config: { topic: NAME } }
sinks:
  warm: { type: stream, inputs: [readings], where: "temp > 68", config: { topic: NAME-warm } }
"""


async def test_a_job_is_submitted_described_stopped_and_waited_for(face: Face, client: Any, name: str) -> None:
    for stream in (name, f"{name}-warm"):
        await face.done(client.streams.create(stream, partitions=1))
    job = await face.done(client.jobs.submit(DOCUMENT.replace("NAME", name)))
    assert job["name"] == name
    async with face.opened(client.streams.tail(f"{name}-warm", start="earliest")) as warm:
        await face.done(client.streams.append(name, [{"temp": 50}, {"temp": 77}]))
        assert (await face.next(warm)).value == {"temp": 77}
    assert (await face.done(client.jobs.status(job["id"])))["state"] == "running"
    assert [listed["id"] for listed in await face.done(client.jobs.list(name=name))] == [job["id"]]
    await face.done(client.jobs.stop(job["id"]))
    assert (await face.done(client.jobs.wait(job["id"], timeout_s=50)))["state"] == "stopped"
    assert [listed["id"] for listed in await face.done(client.jobs.list(name=name, state="running"))] == []


COUNTS = """
version: 1
kind: Job
name: NAME
checkpoint: { interval: 50ms }
sources:
  readings: { type: stream, config: { topic: NAME } }
transforms:
  counts: { type: map, inputs: [readings], key_by: [$key], select: "RUNNING_COUNT(n) AS count" }
sinks:
  counted: { type: stream, inputs: [counts], config: { topic: NAME-counted } }
"""


async def test_a_job_is_replaced_and_its_state_goes_on(face: Face, client: Any, name: str) -> None:
    document = COUNTS.replace("NAME", name)
    for stream in (name, f"{name}-counted"):
        await face.done(client.streams.create(stream, partitions=1))
    first = await face.done(client.jobs.submit(document))
    async with face.opened(client.streams.tail(f"{name}-counted", start="earliest")) as counted:
        await face.done(client.streams.append(name, [Record(key=key, value={"n": 1}) for key in ("a", "a", "b")]))
        assert [(await face.next(counted)).value["count"] for _ in range(3)] == [1, 2, 1]
        with pytest.raises(ConflictError):
            await face.done(client.jobs.submit(document))
        second = await face.done(client.jobs.submit(document, replace=True, timeout_s=60))
        assert second["replaced"] == first["id"]
        assert (await face.done(client.jobs.status(second["id"])))["resumed_from"] == first["id"]
        await face.done(client.streams.append(name, [Record(key="a", value={"n": 1})]))
        assert (await face.next(counted)).value["count"] == 3
    for job in (first, second):
        newest, *_ = await face.done(client.jobs.checkpoints(job["id"]))
        state = await face.done(client.jobs.state(job["id"], "counts"))
        assert newest["epoch"] >= 1
        assert [(stored["key"], stored["bytes"] > 0) for stored in state["values"]] == [("a", True), ("b", True)]
    one = await face.done(client.jobs.state(second["id"], "counts", limit=1))
    assert (len(one["values"]), one["more"]) == (1, True)
    only = await face.done(client.jobs.state(second["id"], "counts", key="b"))
    assert [stored["key"] for stored in only["values"]] == ["b"]
    with pytest.raises(NotFoundError):
        await face.done(client.jobs.state(second["id"], "readings"))
    await face.done(client.jobs.stop(second["id"]))
    assert (await face.done(client.jobs.wait(second["id"], timeout_s=50)))["state"] == "stopped"


async def test_a_document_with_faults_is_refused_with_all_of_them(face: Face, client: Any) -> None:
    for document in ("version: 2", {"version": 2}):
        with pytest.raises(InvalidError) as refused:
            await face.done(client.jobs.submit(document))
        assert len(refused.value.members["findings"]) == 4
    with pytest.raises(NotFoundError):
        await face.done(client.jobs.status("5fcc3322-56a9-495b-b7b7-cbcfe45066cf"))
