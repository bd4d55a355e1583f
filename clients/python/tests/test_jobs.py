"""Stream jobs."""

from typing import Any

import pytest
from conftest import Face

from millstream import InvalidError, NotFoundError

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


async def test_a_document_with_faults_is_refused_with_all_of_them(face: Face, client: Any) -> None:
    for document in ("version: 2", {"version": 2}):
        with pytest.raises(InvalidError) as refused:
            await face.done(client.jobs.submit(document))
        assert len(refused.value.members["findings"]) == 4
    with pytest.raises(NotFoundError):
        await face.done(client.jobs.status("5fcc3322-56a9-495b-b7b7-cbcfe45066cf"))
