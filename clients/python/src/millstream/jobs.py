"""Stream jobs: documents that run on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from . import _async, _sync
from ._request import Call, Request, Scope, dump, params, path

Job: TypeAlias = dict[str, Any]
"""`id`, `name`, `state`, and what has happened to it; `resumed_from` is the id of the job whose state it began with."""

StoredState: TypeAlias = dict[str, Any]
"""`values`: the keys of a node with the `bytes` of their values, as of `epoch`; `more` if there are others."""

Checkpoint: TypeAlias = dict[str, Any]
"""`epoch` and `at`; while the job runs also `bytes` and `took_ms`."""


def _submit(_: Scope, /, document: str | Mapping[str, Any], *, replace: bool = False, timeout_s: int = 30) -> Call[Job]:
    """Submits a job, as YAML or as a mapping, and returns its `id` and `state`. Faults are an `InvalidError`, which
    has all of them in `members["findings"]`.

    With `replace` it takes the place of the running job of its name, whose id is `replaced` then, and goes on from its
    last epoch. A job that does not stop within `timeout_s` goes on: a `ConflictError` with the code `job_not_replaced`.
    """
    body = document.encode() if isinstance(document, str) else dump(document)
    kind = "application/json" if isinstance(document, Mapping) else "text/plain"
    query = params(replace=True, timeout=f"{timeout_s}s") if replace else ()
    waits_s = float(timeout_s) if replace else 0.0
    response = yield Request("POST", "/api/jobs", query, headers={"Content-Type": kind}, body=body, waits_s=waits_s)
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


def _checkpoints(_: Scope, /, job_id: str) -> Call[list[Checkpoint]]:
    """Lists the last epochs of a job, newest first; of one that does not run, the last one."""
    response = yield Request("GET", path("api", "jobs", job_id, "checkpoints"))
    checkpoints: list[Checkpoint] = response.json()["checkpoints"]
    return checkpoints


def _state(
    _: Scope, /, job_id: str, node: str, *, key: str | None = None, limit: int | None = None
) -> Call[StoredState]:
    """Lists the keys of a node that have state, at most `limit`, in the order of their bytes; only `key` (as text or
    JSON) if it is given. All is as of the last epoch.
    """
    to = path("api", "jobs", job_id, "state")
    response = yield Request("GET", to, params(node=node, key=key, limit=limit))
    state: StoredState = response.json()
    return state


class Jobs(_sync.Group):
    """Stream jobs, blocking."""

    submit = _sync.call(_submit)
    status = _sync.call(_status)
    list = _sync.call(_list)
    stop = _sync.call(_stop)
    wait = _sync.call(_wait)
    checkpoints = _sync.call(_checkpoints)
    state = _sync.call(_state)


class AsyncJobs(_async.AsyncGroup):
    """Stream jobs, for asyncio."""

    submit = _async.call(_submit)
    status = _async.call(_status)
    list = _async.call(_list)
    stop = _async.call(_stop)
    wait = _async.call(_wait)
    checkpoints = _async.call(_checkpoints)
    state = _async.call(_state)
