"""Streams: topics of records, appended in batches, read in pages and followed as they grow."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from . import _async, _sync
from ._listing import Event, Listing, Page, Subscription
from ._request import (
    Ack,
    Call,
    Request,
    Scope,
    Start,
    dump,
    given,
    iso,
    json_request,
    moment_of,
    params,
    path,
    start_text,
)
from .errors import MillstreamError, RecordsLost

PAGE_RECORDS = 1000


class Text(str):
    """A record's value that is text and no JSON. A plain `str` is appended as a text in JSON, with its quotes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record. Its value is JSON, `Text` or `bytes`; None deletes its key in a compacted stream.

    A record that is read has a partition, an offset in it, and the time of its append unless it came with one.
    """

    value: Any
    key: str | bytes | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    timestamp: datetime | None = None
    partition: int | None = None
    offset: int | None = None

    def row(self) -> dict[str, Any]:
        """The record as a row of a frame, with the names of the query language."""
        values = self.value if isinstance(self.value, dict) else {"payload": self.value}
        meta = {"$partition": self.partition, "$offset": self.offset, "$timestamp": self.timestamp, "$key": self.key}
        return {**meta, **values}


@dataclass(frozen=True, slots=True)
class Appended:
    """The number of records, their level, and by partition the first and last offset."""

    count: int
    ack: str
    offsets: Mapping[int, tuple[int, int]]


def _written(record: Record | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(record, Record):
        return {"value": record}
    written: dict[str, Any] = {}
    if isinstance(record.value, bytes):
        written["value_base64"] = base64.b64encode(record.value).decode()
    elif isinstance(record.value, Text):
        written["value_text"] = record.value
    else:
        written["value"] = record.value
    if isinstance(record.key, bytes):
        written["key_base64"] = base64.b64encode(record.key).decode()
    elif record.key is not None:
        written["key"] = record.key
    timestamp = iso(record.timestamp) if record.timestamp else None
    return written | given(headers=dict(record.headers) or None, timestamp=timestamp, partition=record.partition)


def _read_record(shown: Mapping[str, Any]) -> Record:
    value = shown.get("value")
    if "value_base64" in shown:
        value = base64.b64decode(shown["value_base64"])
    elif "value_text" in shown:
        value = Text(shown["value_text"])
    key = base64.b64decode(shown["key_base64"]) if "key_base64" in shown else shown.get("key")
    return Record(
        value=value,
        key=key,
        headers=shown.get("headers", {}),
        timestamp=moment_of(shown["timestamp"]),
        partition=shown["partition"],
        offset=shown["offset"],
    )


def _create(_: Scope, /, stream: str, **settings: Any) -> Call[dict[str, Any]]:
    """Makes a stream. `settings` are those of a topic: `partitions`, `level`, `retention`, `cleanup`, …"""
    response = yield json_request("PUT", path("api", "streams", stream), settings)
    made: dict[str, Any] = response.json()
    return made


def _info(_: Scope, /, stream: str) -> Call[dict[str, Any]]:
    """Describes a stream: its settings, sizes, and the first and last offset of each partition."""
    response = yield Request("GET", path("api", "streams", stream, "info"))
    info: dict[str, Any] = response.json()
    return info


def _list(_: Scope, /) -> Call[list[dict[str, Any]]]:
    """Describes all streams of the tenant."""
    response = yield Request("GET", "/api/streams")
    streams: list[dict[str, Any]] = response.json()
    return streams


def _delete(_: Scope, /, stream: str) -> Call[None]:
    """Deletes a stream and its records."""
    yield Request("DELETE", path("api", "streams", stream))


def _append(
    _: Scope, /, stream: str, records: Iterable[Record | Mapping[str, Any]], *, ack: Ack | None = None
) -> Call[Appended]:
    """Appends records, all of them or none: at most 50,000, and 8 MiB. A mapping is the value of a record without key.

    It returns once they are as durable as the stream's level promises, or as `ack` asks. Readers see them once they are
    as durable as the level.
    """
    body = b"\n".join(dump(_written(record)) for record in records)
    headers = {"Content-Type": "application/x-ndjson"}
    response = yield Request("POST", path("api", "streams", stream, "records"), params(ack=ack), headers, body)
    told = response.json()
    places = {place["partition"]: (place["first"], place["last"]) for place in told["partitions"]}
    return Appended(told["count"], told["ack"], places)


def _filters(key: str | None, headers: Mapping[str, str] | None, partitions: Sequence[int]) -> dict[str, str]:
    by_header = {f"header.{name}": wanted for name, wanted in (headers or {}).items()}
    return params(key=key, partition=",".join(map(str, partitions)) or None) | by_header


def _read(
    _: Scope,
    /,
    stream: str,
    *,
    start: Start = "earliest",
    until: Start = "latest",
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    partitions: Sequence[int] = (),
) -> Listing[Record]:
    """Reads the records that are there, from `start`: `earliest`, a time, or a position such as `0:17,1:4`.

    `key` and `headers` filter by patterns with `*` and `?`. `until` is fixed by the first page if it is `latest`.
    """
    query = params(limit=PAGE_RECORDS) | _filters(key, headers, partitions)

    def first() -> Call[Page[Record]]:
        end = until
        if end == "latest":
            # The end stays where it is now, although later pages are read later.
            end = (yield from _page(stream, query | {"from": "latest", "limit": "1"}))["next"]
        return (yield from page(start_text(start), start_text(end)))

    def page(begin: str, end: str) -> Call[Page[Record]]:
        told = yield from _page(stream, query | {"from": begin, "until": end})
        records = [_read_record(record) for record in told["records"]]
        lost = RecordsLost({"gaps": told["gaps"]}) if told["gaps"] else None
        behind = told["next"]
        return Page(records, (lambda: page(behind, end)) if behind not in (begin, end) else None, lost)

    return Listing(first, Record.row)


def _page(stream: str, query: Mapping[str, str]) -> Call[dict[str, Any]]:
    response = yield Request("GET", path("api", "streams", stream), query)
    told: dict[str, Any] = response.json()
    return told


class Tail(Subscription[Record]):
    """The state of a tail."""

    row = staticmethod(Record.row)

    def __init__(self, stream: str, start: Start, query: dict[str, str]) -> None:
        super().__init__()
        self._stream, self._start, self._query = stream, start, query

    def begin(self) -> Call[None]:
        if self._start == "latest":
            # A connection that breaks before the first record must not lose those that come meanwhile.
            self.position = (yield from _page(self._stream, self._query | {"from": "latest", "limit": "1"}))["next"]

    def request(self) -> Request:
        query = self._query | {"from": start_text(self._start)}
        return Request("GET", path("api", "streams", self._stream), query, self.resume_headers())

    def take(self, event: Event) -> Iterable[Record | MillstreamError]:
        if event.name == "record":
            return [_read_record(event.json())]
        return [RecordsLost(event.json())] if event.name == "gap" else []


def _tail(
    _: Scope,
    /,
    stream: str,
    *,
    start: Start = "latest",
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    partitions: Sequence[int] = (),
) -> Tail:
    """Follows a stream: each record from `start` on once, as it comes.

    `start` is `latest`, `earliest`, a time, or the `position` of an earlier tail. A connection that breaks is made anew
    and goes on where it was; after `reconnect_s` without one the tail raises. `RecordsLost` says that some are gone.
    """
    return Tail(stream, start, _filters(key, headers, partitions))


class Streams(_sync.Group):
    """Streams, blocking."""

    create = _sync.call(_create)
    info = _sync.call(_info)
    list = _sync.call(_list)
    delete = _sync.call(_delete)
    append = _sync.call(_append)
    read = _sync.pages(_read)
    tail = _sync.stream(_sync.Stream[Record], _tail)


class AsyncStreams(_async.AsyncGroup):
    """Streams, for asyncio."""

    create = _async.call(_create)
    info = _async.call(_info)
    list = _async.call(_list)
    delete = _async.call(_delete)
    append = _async.call(_append)
    read = _async.pages(_read)
    tail = _async.stream(_async.AsyncStream[Record], _tail)
