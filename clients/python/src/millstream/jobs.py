"""Stream jobs: documents that run on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from . import _async, _sync
from ._request import Call, Request, Scope, dump, params, path

Job: TypeAlias = dict[str, Any]
"""`id`, `name`, `state`, and what has happened to it."""


def _submit(_: Scope, /, document: str | Mapping[str, Any]) -> Call[Job]:
    """Submits a job, as YAML or as a mapping, and returns its `id` and `state`. Faults are an `InvalidError`, which
    has all of them in `members["findings"]`.
    """
    body = document.encode() if isinstance(document, str) else dump(document)
    kind = "application/json" if isinstance(document, Mapping) else "text/plain"
    response = yield Request("POST", "/api/jobs", headers={"Content-Type": kind}, body=body)
    job: Job = response.json()
    return job


def _status(_: Scope, /, job_id: str) -> Call[Job]:
    """Describes a job: its state, why it waits, its counts and rates."""
    response = yield Request("GET", path("api", "jobs", job_id, "status"))
    job: Job = response.json()
    return job


def _list(_: Scope, /, *, name: str | None = None, state: str | None = None) -> Call[list[Job]]:
    """Describes the jobs of the tenant, newest first."""
    response = yield Request("GET", "/api/jobs", params(name=name, state=state))
    jobs: list[Job] = response.json()
    return jobs


def _stop(_: Scope, /, job_id: str) -> Call[None]:
    """Tells a job to stop; `wait` returns once it has."""
    yield Request("POST", path("api", "jobs", job_id, "stop"))


def _wait(_: Scope, /, job_id: str, *, timeout_s: int = 30) -> Call[Job]:
    """Waits until a job has ended, for so long, and describes it."""
    to = path("api", "jobs", job_id, "wait")
    response = yield Request("GET", to, params(timeout=timeout_s), waits_s=float(timeout_s))
    job: Job = response.json()
    return job


class Jobs(_sync.Group):
    """Stream jobs, blocking."""

    submit = _sync.call(_submit)
    status = _sync.call(_status)
    list = _sync.call(_list)
    stop = _sync.call(_stop)
    wait = _sync.call(_wait)


class AsyncJobs(_async.AsyncGroup):
    """Stream jobs, for asyncio."""

    submit = _async.call(_submit)
    status = _async.call(_status)
    list = _async.call(_list)
    stop = _async.call(_stop)
    wait = _async.call(_wait)
