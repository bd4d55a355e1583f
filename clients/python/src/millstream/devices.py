"""Devices: the registry, sending as a device over HTTP, and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from . import _async, _sync
from ._listing import Listing, Page
from ._request import Call, Request, Scope, content_of, dump, given, json_request, moment_of, params, path, payload
from .errors import NotFoundError

PAGE_DEVICES = 200
ACCEPTED = 202


@dataclass(frozen=True, slots=True)
class Device:
    """A device as the registry has it; `document` is the whole entry."""

    id: str
    document: Mapping[str, Any] = field(repr=False)

    @property
    def is_enabled(self) -> bool:
        return bool(self.document.get("enabled", True))

    @property
    def via(self) -> Sequence[str]:
        """The gateways that may send for it."""
        return list(self.document.get("via", ()))

    @property
    def ext(self) -> Mapping[str, Any]:
        """The notes of applications about it."""
        return dict(self.document.get("ext", {}))

    @property
    def is_connected(self) -> bool:
        """True while it has an open MQTT connection of its own."""
        return bool(self._status.get("connected", False))

    @property
    def created(self) -> datetime | None:
        return moment_of(self._status.get("created"))

    @property
    def last_seen(self) -> datetime | None:
        """When its last message came; None before the first one."""
        return moment_of(self._status.get("last-seen"))

    @property
    def _status(self) -> Mapping[str, Any]:
        return dict(self.document.get("status", {}))


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a device has received as the answer to what it sent."""

    name: str
    payload: Any
    device_id: str
    auth_id: str
    request_id: str | None
    """None if no answer is wanted."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The end of a command: the device's `status` and `payload`, or for a one-way command its `outcome`."""

    status: int
    payload: Any
    outcome: Literal["answered", "accepted", "waiting"]
    correlation_id: str


def _create_tenant(scope: Scope, /, settings: Mapping[str, Any] | None = None) -> Call[None]:
    """Creates the client's tenant in the registry, as devices of any tenant but `default` need; one that exists is a
    `ConflictError`.
    """
    yield json_request("POST", path("v1", "tenants", scope.tenant), settings or {})


def _register(
    scope: Scope,
    /,
    device_id: str,
    *,
    via: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    ext: Mapping[str, Any] | None = None,
    enabled: bool = True,
) -> Call[None]:
    """Registers a device; `via` names the gateways that may send for it. One that exists is a `ConflictError`."""
    document = given(via=list(via) or None, defaults=defaults, ext=ext, enabled=enabled)
    yield json_request("POST", path("v1", "devices", scope.tenant, device_id), document)


def _update(
    scope: Scope,
    /,
    device_id: str,
    *,
    via: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    ext: Mapping[str, Any] | None = None,
    enabled: bool = True,
) -> Call[None]:
    """Replaces the entry of a device; what is left out is gone. Passwords stay."""
    document = given(via=list(via) or None, defaults=defaults, ext=ext, enabled=enabled)
    yield json_request("PUT", path("v1", "devices", scope.tenant, device_id), document)


def _get(scope: Scope, /, device_id: str) -> Call[Device]:
    """Reads a device."""
    response = yield Request("GET", path("v1", "devices", scope.tenant, device_id))
    return Device(device_id, response.json())


def _list(
    scope: Scope,
    /,
    where: Mapping[str, str] | None = None,
    *,
    gateways: bool | None = None,
    order_by: str | None = None,
) -> Listing[Device]:
    """Searches devices. `where` maps JSON pointers to patterns, as `{"/ext/hall": "west*"}`; all of them must match.

    `order_by` is a JSON pointer, with a `-` before it for descending order; `gateways` asks for gateways only, or for
    the others.
    """
    filters = [dump({"field": pointer, "value": wanted}).decode() for pointer, wanted in (where or {}).items()]

    def page(offset: int = 0) -> Call[Page[Device]]:
        query = [("pageSize", str(PAGE_DEVICES)), ("pageOffset", str(offset))]
        query += [("filterJson", text) for text in filters]
        if order_by:
            direction = "desc" if order_by.startswith("-") else "asc"
            query.append(("sortJson", dump({"field": order_by.removeprefix("-"), "direction": direction}).decode()))
        query += list(params(isGateway=gateways).items())
        try:
            response = yield Request("GET", path("v1", "devices", scope.tenant), query)
        except NotFoundError as error:
            # A search without result is answered like this, an unknown tenant likewise.
            if error.members.get("value") != "0 results":
                raise
            return Page([])
        found = response.json()
        devices = [Device(document["id"], document) for document in found["result"]]
        end = offset + len(devices)
        return Page(devices, (lambda: page(end)) if devices and end < found["total"] else None)

    return Listing(page, lambda device: {"id": device.id, **device.document})


def _delete(scope: Scope, /, device_id: str) -> Call[None]:
    """Deletes a device with its passwords."""
    yield Request("DELETE", path("v1", "devices", scope.tenant, device_id))


def _set_password(scope: Scope, /, device_id: str, password: str, *, auth_id: str | None = None) -> Call[None]:
    """Replaces all credentials of a device by a password; it logs in as `auth_id`, else as its id."""
    secret = {"type": "hashed-password", "auth-id": auth_id or device_id, "secrets": [{"pwd-plain": password}]}
    yield json_request("PUT", path("v1", "credentials", scope.tenant, device_id), [secret])


def _send(
    scope: Scope,
    /,
    device_id: str,
    content: Any,
    *,
    password: str,
    auth_id: str | None = None,
    kind: Literal["telemetry", "event"] = "telemetry",
    qos: Literal[0, 1] = 1,
    content_type: str | None = None,
    ttl_s: int | None = None,
    wait_s: int | None = None,
) -> Call[Command | None]:
    """Sends telemetry or an event as a device, or as the gateway whose `auth_id` and password these are.

    After it returns, telemetry at `qos` 1 survives a crash of the server, an event also a loss of power. With `wait_s`
    the device waits so long for a command, and gets it as the result. `bytes` are sent as they are, a `str` as text,
    all else as JSON.
    """
    body, body_type = payload(content, content_type)
    headers = {"Content-Type": body_type}
    if kind == "telemetry":
        headers["qos-level"] = str(qos)
    query = given_numbers({"hono-ttl": ttl_s, "hono-ttd": wait_s})
    login = (f"{auth_id or device_id}@{scope.tenant}", password)
    response = yield Request(
        "PUT", path(kind, scope.tenant, device_id), query, headers, body, login=login, waits_s=float(wait_s or 0)
    )
    name = response.headers.get("hono-command")
    if name is None:
        return None
    target = response.headers.get("hono-cmd-target-device", device_id)
    request_id = response.headers.get("hono-cmd-req-id")
    return Command(name, content_of(response), target, auth_id or device_id, request_id)


def _answer(
    scope: Scope,
    /,
    command: Command,
    content: Any = b"",
    *,
    password: str,
    status: int = 200,
    content_type: str | None = None,
) -> Call[None]:
    """Answers a command as the device that received it; `status` is 200 to 299, or 400 to 599."""
    if command.request_id is None:
        raise ValueError(f"command {command.name!r} is one-way: no answer is wanted")
    body, body_type = payload(content, content_type)
    login = (f"{command.auth_id}@{scope.tenant}", password)
    to = path("command", "res", scope.tenant, command.device_id, command.request_id)
    query = {"hono-cmd-status": str(status)}
    yield Request("PUT", to, query, {"Content-Type": body_type}, body, login=login)


def _command(
    scope: Scope,
    /,
    device_id: str,
    name: str,
    content: Any = b"",
    *,
    one_way: bool = False,
    ttl_s: int | None = None,
    timeout_s: float = 10.0,
    content_type: str | None = None,
    correlation_id: str | None = None,
) -> Call[CommandAnswer]:
    """Sends a command to a device and waits up to `timeout_s` for its answer.

    With `ttl_s` the command waits so long for its device, over restarts of the server. `one_way` wants no answer. A
    command that does not reach its device, or is not answered in time, raises `UnavailableError`; `members["outcome"]`
    says which.
    """
    body, body_type = payload(content, content_type)
    query = params(command=name, **{"one-way": one_way or None, "ttl-s": ttl_s, "timeout-ms": int(timeout_s * 1000)})
    query |= params(**{"correlation-id": correlation_id})
    to = path("api", "commands", scope.tenant, device_id)
    response = yield Request("POST", to, query, {"Content-Type": body_type}, body, waits_s=timeout_s)
    told = response.headers["correlation-id"]
    if response.status_code == ACCEPTED:
        return CommandAnswer(ACCEPTED, None, response.json()["outcome"], told)
    return CommandAnswer(int(response.headers["hono-cmd-status"]), content_of(response), "answered", told)


def given_numbers(query: Mapping[str, int | None]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


class Devices(_sync.Group):
    """Devices, blocking."""

    create_tenant = _sync.call(_create_tenant)
    register = _sync.call(_register)
    update = _sync.call(_update)
    get = _sync.call(_get)
    list = _sync.pages(_list)
    delete = _sync.call(_delete)
    set_password = _sync.call(_set_password)
    send = _sync.call(_send)
    answer = _sync.call(_answer)
    command = _sync.call(_command)


class AsyncDevices(_async.AsyncGroup):
    """Devices, for asyncio."""

    create_tenant = _async.call(_create_tenant)
    register = _async.call(_register)
    update = _async.call(_update)
    get = _async.call(_get)
    list = _async.pages(_list)
    delete = _async.call(_delete)
    set_password = _async.call(_set_password)
    send = _async.call(_send)
    answer = _async.call(_answer)
    command = _async.call(_command)
