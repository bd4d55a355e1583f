"""A request as a value, and helpers to build one and to read its answer.

An operation is a generator: it yields a `Request`, is sent the answer, and returns what the caller gets. It is written
once; `_sync` and `_async` drive it. A refusal is raised where the generator stands, so that it can be caught there.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import httpx

T = TypeVar("T")

Call: TypeAlias = Generator["Request", httpx.Response, T]
Start: TypeAlias = str | datetime
Moment: TypeAlias = datetime | str
Params: TypeAlias = Mapping[str, str] | list[tuple[str, str]] | tuple[tuple[str, str], ...]

JSON = "application/json"
# Times of the server are whole milliseconds.
TICK = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a client that paths depend on."""

    tenant: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `login` is the user name and password of a device, which asks the listener of devices."""

    method: str
    path: str
    params: Params = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)
    # Added to the time that an answer may take.
    waits_s: float = 0.0


def path(*segments: str) -> str:
    return "".join(f"/{segment_of(segment)}" for segment in segments)


def segment_of(name: str | bytes) -> str:
    """Encodes one segment of a path; those that mean a place in a path are encoded whole."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded


def json_request(method: str, to: str, document: Any, **options: Any) -> Request:
    return Request(method, to, body=dump(document), headers={"Content-Type": JSON}, **options)


def dump(document: Any) -> bytes:
    return json.dumps(
        document, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_dump_other
    ).encode()


def _dump_other(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    # Numbers of numpy, as they stand in frames.
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} has no form in JSON; convert it first")


def iso(moment: Moment) -> str:
    """Writes a moment for the server; one without time zone could mean any."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; use datetime.now(UTC) or moment.replace(tzinfo=UTC)")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(length: timedelta | str | None) -> str | None:
    """Writes a length of time as ISO 8601 does; text is one already."""
    if not isinstance(length, timedelta):
        return length
    if length <= timedelta() or length % TICK:
        raise ValueError(f"{length!r} is no period; use one of whole milliseconds, such as timedelta(minutes=15)")
    return f"PT{length // TICK / 1000:.3f}".rstrip("0").rstrip(".") + "S"


def start_text(start: Start) -> str:
    return iso(start) if isinstance(start, datetime) else start


def moment_of(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def params(**given: str | float | datetime | None) -> dict[str, str]:
    """The parameters of a query, without those that are None."""
    shown: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, bool):
            shown[name] = "true" if value else "false"
        elif isinstance(value, datetime):
            shown[name] = iso(value)
        elif value is not None:
            shown[name] = str(value)
    return shown


def given(**members: Any) -> dict[str, Any]:
    """The members of a document that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def payload(content: Any, content_type: str | None) -> tuple[bytes, str]:
    """Bytes are sent as they are, a `str` as text, all else as JSON."""
    if isinstance(content, bytes):
        return content, content_type or "application/octet-stream"
    if isinstance(content, str):
        return content.encode(), content_type or "text/plain; charset=utf-8"
    return dump(content), content_type or JSON


def content_of(response: httpx.Response) -> Any:
    """The counterpart of `payload`, by the answer's type."""
    return content_as(response.content, response.headers.get("content-type"))


def content_as(content: bytes, content_type: str | None) -> Any:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if content and (kind == JSON or kind.endswith("+json")):
        return json.loads(content)
    return content.decode() if kind.startswith("text/") else content


Ack: TypeAlias = Literal["memory", "written", "synced"]
