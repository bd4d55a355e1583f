"""Keys and values: the buckets of the store."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from . import _async, _sync
from ._listing import Event, Listing, Page, Subscription
from ._request import (
    Ack,
    Call,
    Request,
    Scope,
    Start,
    json_request,
    moment_of,
    params,
    path,
    payload,
    segment_of,
    start_text,
)
from .errors import ConnectionFailed, MillstreamError, RecordsLost

if TYPE_CHECKING:
    import httpx

Key: TypeAlias = str | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The bytes under a key, and what was stored beside them."""

    data: bytes = field(repr=False)
    version: int
    content_type: str | None
    expires: datetime | None
    tags: Sequence[str]
    metadata: Mapping[str, str]

    def text(self) -> str:
        return self.data.decode()

    def json(self) -> Any:
        return json.loads(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A key of a listing, or a change of one. `data` is there if values were asked for and it has at most 64 KiB."""

    key: Key
    version: int | None
    kind: Literal["put", "delete"] = "put"
    length: int | None = None
    written: datetime | None = None
    expires: datetime | None = None
    content_type: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    data: bytes | None = field(default=None, repr=False)

    def row(self) -> dict[str, Any]:
        """The item as a row of a frame, its value decoded if it is a text."""
        shown = {name: getattr(self, name) for name in ("key", "version", "kind", "length", "written", "expires")}
        try:
            return {**shown, "value": self.data.decode() if self.data is not None else None}
        except UnicodeDecodeError:
            return {**shown, "value": self.data}


def _item_of(shown: Mapping[str, Any], kind: Literal["put", "delete"] = "put") -> Item:
    data = shown["value"].encode() if "value" in shown else None
    if "value_base64" in shown:
        data = base64.b64decode(shown["value_base64"])
    return Item(
        key=base64.b64decode(shown["key_base64"]) if "key_base64" in shown else shown["key"],
        version=shown.get("version"),
        kind=kind,
        length=shown.get("length"),
        written=moment_of(shown.get("written")),
        expires=moment_of(shown.get("expires")),
        content_type=shown.get("content_type"),
        tags=shown.get("tags", ()),
        metadata=shown.get("metadata", {}),
        data=data,
    )


def _path(bucket: str, key: Key) -> str:
    """Slashes divide a key; a `_` at its beginning would be a route of the bucket."""
    raw = key.encode() if isinstance(key, str) else key
    encoded = "/".join(segment_of(segment) for segment in raw.split(b"/"))
    if encoded.startswith("_"):
        encoded = f"%5F{encoded[1:]}"
    return f"{path('kv', bucket)}/{encoded}"


def _query(**given: str | bytes | None) -> str:
    """A query as part of a path; prefixes may be any bytes."""
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items() if value)


def _make_bucket(_: Scope, /, bucket: str, **settings: Any) -> Call[dict[str, Any]]:
    """Makes a bucket, or changes its settings; one that is left out gets its default."""
    response = yield json_request("PUT", path("buckets", bucket), settings)
    made: dict[str, Any] = response.json()
    return made


def _bucket(_: Scope, /, bucket: str) -> Call[dict[str, Any]]:
    """Describes a bucket: its settings and figures."""
    response = yield Request("GET", path("buckets", bucket))
    told: dict[str, Any] = response.json()
    return told


def _buckets(_: Scope, /) -> Call[list[dict[str, Any]]]:
    """Describes the buckets of the tenant."""
    response = yield Request("GET", "/buckets")
    buckets: list[dict[str, Any]] = response.json()
    return buckets


def _delete_bucket(_: Scope, /, bucket: str) -> Call[None]:
    """Deletes a bucket with all that it holds."""
    yield Request("DELETE", path("buckets", bucket))


def _get(_: Scope, /, bucket: str, key: Key) -> Call[Value]:
    """Reads a value; a key that is not there is a `NotFoundError`."""
    response = yield Request("GET", _path(bucket, key))
    told = response.headers
    tags = told.get("x-tags")
    prefix = "x-meta-"
    return Value(
        data=response.content,
        version=_version(response),
        content_type=told.get("content-type"),
        expires=moment_of(told.get("x-expires")),
        tags=tags.split(",") if tags else [],
        metadata={name.removeprefix(prefix): value for name, value in told.items() if name.startswith(prefix)},
    )


def _version(response: httpx.Response) -> int:
    return int(response.headers["etag"].strip('"'))


def _put(
    _: Scope,
    /,
    bucket: str,
    key: Key,
    value: Any,
    *,
    ttl_s: float | None = None,
    if_absent: bool = False,
    if_version: int | None = None,
    content_type: str | None = None,
    tags: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
    ack: Ack | None = None,
) -> Call[int]:
    """Stores a value and returns its version: `bytes` as they are, a `str` as text, all else as JSON.

    With `if_absent` or `if_version` it is stored only if the key is not there, or has that version; otherwise it is a
    `PreconditionFailedError`.
    """
    body, body_type = payload(value, content_type)
    headers = {"Content-Type": body_type} | {f"X-Meta-{name}": text for name, text in (metadata or {}).items()}
    if tags:
        headers["X-Tags"] = ",".join(tags)
    if if_absent:
        headers["If-None-Match"] = "*"
    headers |= _if_match(if_version)
    query = params(ttl=None if ttl_s is None else round(ttl_s * 1000), ack=ack)
    return _version((yield Request("PUT", _path(bucket, key), query, headers, body)))


def _delete(_: Scope, /, bucket: str, key: Key, *, if_version: int | None = None) -> Call[None]:
    """Deletes a key, or only if it has this version; a key that is not there is a `NotFoundError`."""
    yield Request("DELETE", _path(bucket, key), headers=_if_match(if_version))


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def _list(_: Scope, /, bucket: str, prefix: Key = "", *, start: Key = "", values: bool = False) -> Listing[Item]:
    """Lists the keys that begin with `prefix`, in the order of their bytes, from `start` on."""
    query = _query(prefix=prefix, start=start, values="true" if values else None)

    def page(address: str) -> Call[Page[Item]]:
        response = yield Request("GET", address)
        *lines, last = [json.loads(line) for line in response.content.splitlines()] or [{}]
        if "next" not in last:
            raise ConnectionFailed(f"the listing of bucket {bucket!r} was cut; ask again")
        behind = last["next"]
        return Page([_item_of(line) for line in lines], (lambda: page(behind)) if behind else None)

    return Listing(lambda: page(f"{path('kv', bucket)}?{query}"), Item.row)


class Watch(Subscription[Item]):
    """The state of a watch."""

    row = staticmethod(Item.row)

    def __init__(self, bucket: str, prefix: Key, start: Start, *, values: bool) -> None:
        super().__init__()
        self._bucket, self._start = bucket, start
        query = _query(**{"prefix": prefix, "from": start_text(start), "values": "true" if values else None})
        self._address = f"{path('kv', bucket)}/_watch?{query}"

    def begin(self) -> Call[None]:
        if self._start == "latest":
            # A connection that breaks before the first change must not lose those that come meanwhile.
            bucket = (yield Request("GET", path("buckets", self._bucket))).json()
            end = Request("GET", path("api", "streams", bucket["topic"]), {"from": "latest", "limit": "1"})
            self.position = (yield end).json()["next"]

    def request(self) -> Request:
        return Request("GET", self._address, headers=self.resume_headers())

    def take(self, event: Event) -> Iterable[Item | MillstreamError]:
        if event.name == "put":
            return [_item_of(event.json())]
        if event.name == "delete":
            return [_item_of(event.json(), "delete")]
        return [RecordsLost(event.json())] if event.name == "gap" else []


def _watch(_: Scope, /, bucket: str, prefix: Key = "", *, start: Start = "latest", values: bool = False) -> Watch:
    """Follows puts and deletes of keys that begin with `prefix`, each once, as they come.

    `start` is `latest`, `earliest` (the oldest record that is left), a time, or the `position` of an earlier watch. A
    connection that breaks is made anew, and the watch goes on where it was.
    """
    return Watch(bucket, prefix, start, values=values)


class Keys(_sync.Group):
    """Keys and values, blocking."""

    make_bucket = _sync.call(_make_bucket)
    bucket = _sync.call(_bucket)
    buckets = _sync.call(_buckets)
    delete_bucket = _sync.call(_delete_bucket)
    get = _sync.call(_get)
    put = _sync.call(_put)
    delete = _sync.call(_delete)
    list = _sync.pages(_list)
    watch = _sync.stream(_sync.Stream[Item], _watch)


class AsyncKeys(_async.AsyncGroup):
    """Keys and values, for asyncio."""

    make_bucket = _async.call(_make_bucket)
    bucket = _async.call(_bucket)
    buckets = _async.call(_buckets)
    delete_bucket = _async.call(_delete_bucket)
    get = _async.call(_get)
    put = _async.call(_put)
    delete = _async.call(_delete)
    list = _async.pages(_list)
    watch = _async.stream(_async.AsyncStream[Item], _watch)
