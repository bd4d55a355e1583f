"""Live queries: questions about records that have not arrived yet, and about those that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from . import _async, _frames, _sync
from ._listing import Event, Listing, Page, Subscription
from ._request import Call, Request, Scope, T, given, iso, json_request, params, path
from .errors import MillstreamError, QueryFailed, RecordsLost

if TYPE_CHECKING:
    import pandas as pd

Row: TypeAlias = Any
"""A row by the names of its columns; with `SELECT *` a record that is no object is itself the row."""

Start: TypeAlias = Literal["now", "earliest"] | datetime | Mapping[int, int]
Until: TypeAlias = Literal["now", "never"] | datetime | Mapping[int, int]

PAGE_QUERIES = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """All rows of a query that has ended; `meta` says why it ended, and what it has seen."""

    rows: list[Row]
    meta: Mapping[str, Any] = field(repr=False)

    def to_frame(self) -> pd.DataFrame:
        """The rows as a frame of pandas."""
        return _frames.frame([_frames.row_of(row) for row in self.rows])


@dataclass(frozen=True, slots=True)
class Window:
    """The rows of one window; `meta` has its number, times and counts."""

    rows: list[Row]
    meta: Mapping[str, Any] = field(repr=False)

    @property
    def number(self) -> int | None:
        """Counted from 1; None for the rows that a query without windows gives."""
        return self.meta.get("number")

    def to_frame(self) -> pd.DataFrame:
        """The rows as a frame of pandas."""
        return _frames.frame([_frames.row_of(row) for row in self.rows])


def _place(place: str | datetime | Mapping[int, int] | None) -> Any:
    if isinstance(place, datetime):
        iso(place)
        return {"time_ms": int(place.timestamp() * 1000)}
    if isinstance(place, Mapping):
        return {"offsets": {str(partition): offset for partition, offset in place.items()}}
    return place


# Longer than a query lives that does not say.
WAITS_S = 60.0


def _question(
    query: str,
    start: Start | None,
    until: Until | None,
    duration_s: float | None,
    limit: int | None,
    *,
    with_device: bool,
) -> dict[str, Any]:
    asked = given(until=_place(until), duration_ms=round(duration_s * 1000) if duration_s else None, limit=limit)
    asked |= given(**{"from": _place(start), "with_device": with_device or None})
    return {"query": query, **asked}


def _ask(
    _: Scope,
    /,
    query: str,
    *,
    start: Start | None = None,
    until: Until | None = None,
    duration_s: float | None = None,
    limit: int | None = None,
    with_device: bool = False,
) -> Call[Answer]:
    """Asks a query and waits for its end; all rows come as one answer.

    With `start` in the past it ends with what is there. Without, it sees what comes for 30 s, or for `duration_s`. Give
    `duration_s` as well for a text that says to live longer than a minute.
    """
    question = _question(query, start, until, duration_s, limit, with_device=with_device)
    response = yield json_request("POST", "/api/queries", question, waits_s=WAITS_S + (duration_s or 0))
    told = response.json()
    return Answer(told["records"], told["meta"])


class Results(Subscription[T]):
    """The results of one query, as they come."""

    opens_with_event = True

    def __init__(
        self, question: Mapping[str, Any] | None, query_id: str | None = None, after: str | None = None
    ) -> None:
        super().__init__()
        self._question = question
        self._is_kept = question is None or bool(question.get("keep"))
        self.position = after
        self.id = query_id
        self.columns: list[str] = []
        self.meta: Mapping[str, Any] | None = None

    def request(self) -> Request:
        if self.id is None:
            return json_request("POST", "/api/queries", self._question)
        return Request("GET", path("api", "queries", self.id, "results"), headers=self.resume_headers())

    def can_resume(self) -> bool:
        return self._is_kept and self.id is not None

    def take(self, event: Event) -> Iterable[T | MillstreamError]:
        told = event.json()
        if event.name == "meta":
            self.id, self.columns = told["id"], told["columns"]
            return [RecordsLost({"results of": self.id})] if told.get("gap") else []
        if event.name == "end":
            self.meta = told
            return [QueryFailed(told)] if told["cause"] in ("error", "limit") else []
        return self.give(told["records"], told.get("meta", {}).get("window", {}))

    def give(self, rows: list[Row], window: Mapping[str, Any]) -> Iterable[T]:
        raise NotImplementedError


class RowResults(Results[Row]):
    row = staticmethod(_frames.row_of)

    def give(self, rows: list[Row], _: Mapping[str, Any]) -> Iterable[Row]:
        return rows


class WindowResults(Results[Window]):
    row = staticmethod(lambda window: {"number": window.number, "rows": window.rows})

    def give(self, rows: list[Row], window: Mapping[str, Any]) -> Iterable[Window]:
        return [Window(rows, window)]


def _live_question(
    query: str,
    start: Start | None,
    until: Until | None,
    duration_s: float | None,
    limit: int | None,
    *,
    keep: bool,
    drop_oldest: bool,
    with_device: bool,
) -> dict[str, Any]:
    question = _question(query, start, until, duration_s, limit, with_device=with_device)
    on_slow = "drop_oldest" if drop_oldest else None
    return question | given(deliver="sse", keep=keep or None, on_slow=on_slow)


def _live(
    _: Scope,
    /,
    query: str,
    *,
    start: Start | None = None,
    until: Until | None = None,
    duration_s: float | None = None,
    limit: int | None = None,
    keep: bool = False,
    drop_oldest: bool = False,
    with_device: bool = False,
) -> RowResults:
    """Asks a live query; its rows come as they match. In a `with` block it sees whatever is sent from then on.

    The end of the block ends the query. A broken connection ends it, too (`ConnectionFailed`), unless it is kept: then
    it outlives client and server, and is read on where it was. `drop_oldest` lets a slow reader lose its oldest rows;
    without it the query ends.
    """
    options = {"keep": keep, "drop_oldest": drop_oldest, "with_device": with_device}
    return RowResults(_live_question(query, start, until, duration_s, limit, **options))


def _windows(
    _: Scope,
    /,
    query: str,
    *,
    start: Start | None = None,
    until: Until | None = None,
    duration_s: float | None = None,
    limit: int | None = None,
    keep: bool = False,
    drop_oldest: bool = False,
    with_device: bool = False,
) -> WindowResults:
    """Asks a live query as `live` does, and gives the rows of each window together."""
    options = {"keep": keep, "drop_oldest": drop_oldest, "with_device": with_device}
    return WindowResults(_live_question(query, start, until, duration_s, limit, **options))


def _attach(_: Scope, /, query_id: str, *, after: str | None = None) -> RowResults:
    """Reads a kept query: what nobody has been sent, or what follows the `position` of an earlier reader."""
    return RowResults(None, query_id, after)


def _validate(_: Scope, /, query: str) -> Call[list[dict[str, Any]]]:
    """Checks a query without asking it: an `InvalidError` says where it is wrong, the result has hints."""
    response = yield json_request("POST", "/api/queries/validate", {"query": query})
    hints: list[dict[str, Any]] = response.json()["hints"] if response.content else []
    return hints


def _list(_: Scope, /) -> Listing[dict[str, Any]]:
    """Lists the queries that live."""

    def page(offset: int = 0) -> Call[Page[dict[str, Any]]]:
        response = yield Request("GET", "/api/queries", params(limit=PAGE_QUERIES, offset=offset))
        queries: list[dict[str, Any]] = response.json()
        is_full = len(queries) == PAGE_QUERIES
        return Page(queries, (lambda: page(offset + PAGE_QUERIES)) if is_full else None)

    return Listing(page, lambda query: query)


def _get(_: Scope, /, query_id: str) -> Call[dict[str, Any]]:
    """Describes a query: its text, and what it has seen."""
    response = yield Request("GET", path("api", "queries", query_id))
    meta: dict[str, Any] = response.json()
    return meta


def _end(_: Scope, /, query_id: str) -> Call[None]:
    """Ends a query; its client gets what it has. A kept query that has ended is forgotten."""
    yield Request("DELETE", path("api", "queries", query_id))


class Told(Generic[T]):
    """The server's description of a query, as far as it has come."""

    _results: Results[T]

    @property
    def id(self) -> str | None:
        """The id of the query, once it is asked."""
        return self._results.id

    @property
    def columns(self) -> list[str]:
        """The names of its columns; none with `SELECT *`."""
        return self._results.columns

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """Why it ended, and what it has seen; None before the end."""
        return self._results.meta


class LiveQuery(Told[T], _sync.Stream[T]):
    """Results as they come, blocking."""

    def __init__(self, connection: _sync.Connection, results: Results[T]) -> None:
        super().__init__(connection, results)
        self._results = results


class AsyncLiveQuery(Told[T], _async.AsyncStream[T]):
    """Results as they come, for asyncio."""

    def __init__(self, connection: _async.AsyncConnection, results: Results[T]) -> None:
        super().__init__(connection, results)
        self._results = results


class Queries(_sync.Group):
    """Live queries, blocking."""

    ask = _sync.call(_ask)
    live = _sync.stream(LiveQuery[Row], _live)
    windows = _sync.stream(LiveQuery[Window], _windows)
    attach = _sync.stream(LiveQuery[Row], _attach)
    validate = _sync.call(_validate)
    list = _sync.pages(_list)
    get = _sync.call(_get)
    end = _sync.call(_end)


class AsyncQueries(_async.AsyncGroup):
    """Live queries, for asyncio."""

    ask = _async.call(_ask)
    live = _async.stream(AsyncLiveQuery[Row], _live)
    windows = _async.stream(AsyncLiveQuery[Window], _windows)
    attach = _async.stream(AsyncLiveQuery[Row], _attach)
    validate = _async.call(_validate)
    list = _async.pages(_list)
    get = _async.call(_get)
    end = _async.call(_end)
