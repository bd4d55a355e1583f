"""The history of entities: every value that an attribute has had, or aggregates of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from . import _async, _sync
from ._listing import Listing, Page
from ._request import TICK, Call, Moment, Request, Scope, duration, iso, moment_of, params, path
from .errors import MillstreamError

PAGE_ENTITIES = 100
ENTITIES = ("ngsi-ld", "v1", "temporal", "entities")
ALWAYS = datetime(9999, 12, 31, tzinfo=UTC)
PARTIAL = 206
# NGSI-LD's word for the value of an attribute that was deleted.
DELETED = "urn:ngsi-ld:null"

Aggregate: TypeAlias = dict[str, Any]
"""`entity_id`, `entity_type`, `attribute`, `start` and `end` of the period, and a member for each method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value of an attribute at a moment; a deleted attribute has a last point without value."""

    entity_id: str
    entity_type: str
    attribute: str
    observed_at: datetime
    value: Any
    is_deleted: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The point as a row of a frame."""
        return {
            "entity_id": self.entity_id,
            "entity_type": self.entity_type,
            "attribute": self.attribute,
            "observed_at": self.observed_at,
            "value": self.value,
        }


def _time_query(start: Moment | None, until: Moment | None) -> dict[str, str]:
    if start is not None:
        return {"timerel": "between", "timeAt": iso(start), "endTimeAt": iso(until or ALWAYS)}
    return {"timerel": "before", "timeAt": iso(until)} if until is not None else {}


def _select(
    entity_id: str | None, type: str | None, attrs: Sequence[str], id_pattern: str | None
) -> tuple[str, dict[str, str]]:
    to = path(*ENTITIES) if entity_id is None else path(*ENTITIES, entity_id)
    pages = PAGE_ENTITIES if entity_id is None else None
    return to, params(type=type, attrs=",".join(attrs) or None, idPattern=id_pattern, limit=pages)


def _entities(document: Any) -> list[dict[str, Any]]:
    return [document] if isinstance(document, dict) else document


def _is_full(entity_id: str | None, entities: Sequence[Any]) -> bool:
    return entity_id is None and len(entities) == PAGE_ENTITIES


def _read(
    _: Scope,
    /,
    entity_id: str | None = None,
    *,
    type: str | None = None,
    attrs: Sequence[str] = (),
    id_pattern: str | None = None,
    start: Moment | None = None,
    until: Moment | None = None,
    last: int | None = None,
) -> Listing[Point]:
    """Reads the points of an entity, or of all entities that fit: from `start` on, before `until`, or the `last` so
    many. Times are `datetime`, or text such as `2026-01-01T12:00:00Z`, with a time zone.

    `last` counts for each attribute. It cannot be combined with more points than `history.page_max_points` of the
    server.
    """
    to, query = _select(entity_id, type, attrs, id_pattern)
    query |= params(lastN=last)

    def page(offset: int, begin: Moment | None) -> Call[Page[Point]]:
        paged = params(offset=offset) if entity_id is None else {}
        response = yield Request("GET", to, query | paged | _time_query(begin, until))
        entities = _entities(response.json())
        points = [point for entity in entities for point in _points(entity)]
        if response.status_code == PARTIAL:
            if last is not None:
                raise MillstreamError(f"the last {last} points are more than the server answers at once; ask for fewer")
            # All attributes end at the same moment.
            behind = max(point.observed_at for point in points) + TICK
            return Page(points, lambda: page(offset, behind))
        is_full = _is_full(entity_id, entities)
        return Page(points, (lambda: page(offset + PAGE_ENTITIES, start)) if is_full else None)

    return Listing(lambda: page(0, start), Point.row)


def _points(entity: Mapping[str, Any]) -> Iterator[Point]:
    for name, values in entity.items():
        if not isinstance(values, list):
            continue
        for value in values:
            known = ("type", "value", "observedAt", "deletedAt", "modifiedAt")
            is_deleted = "deletedAt" in value and value["value"] == DELETED
            yield Point(
                entity_id=entity["id"],
                entity_type=entity["type"],
                attribute=name,
                observed_at=datetime.fromisoformat(value["observedAt"]),
                value=None if is_deleted else value["value"],
                is_deleted=is_deleted,
                metadata={key: member.get("value") for key, member in value.items() if key not in known},
            )


def _aggregate(
    _: Scope,
    /,
    entity_id: str | None = None,
    *,
    methods: Sequence[str] = ("avg",),
    period: timedelta | str | None = None,
    type: str | None = None,
    attrs: Sequence[str] = (),
    id_pattern: str | None = None,
    start: Moment | None = None,
    until: Moment | None = None,
) -> Listing[Aggregate]:
    """Aggregates the points of each attribute: `avg`, `min`, `max`, `sum`, `stddev`, `totalCount`, `distinctCount`,
    `sumsq`.

    `period` is a `timedelta`, or a duration of ISO 8601, such as `PT15M` or `P1M`; without it there is one row for each
    attribute. Periods without a value are left out. Times are those of `read`.
    """
    to, query = _select(entity_id, type, attrs, id_pattern)
    query |= {"options": "aggregatedValues", "aggrMethods": ",".join(methods)}
    query |= params(aggrPeriodDuration=duration(period)) | _time_query(start, until)

    def page(offset: int = 0) -> Call[Page[Aggregate]]:
        response = yield Request("GET", to, query | (params(offset=offset) if entity_id is None else {}))
        entities = _entities(response.json())
        rows = [row for entity in entities for row in _aggregates(entity)]
        return Page(rows, (lambda: page(offset + PAGE_ENTITIES)) if _is_full(entity_id, entities) else None)

    return Listing(page, lambda row: row)


def _aggregates(entity: Mapping[str, Any]) -> Iterator[Aggregate]:
    for name, attribute in entity.items():
        if not isinstance(attribute, dict):
            continue
        rows: dict[tuple[str | None, ...], Aggregate] = {}
        for method, periods in attribute.items():
            if method == "type":
                continue
            for value, *bounds in periods:
                begin, end = bounds or (None, None)
                head = {"entity_id": entity["id"], "entity_type": entity["type"], "attribute": name}
                head |= {"start": moment_of(begin), "end": moment_of(end)}
                rows.setdefault((begin, end), head)[method] = value
        yield from rows.values()


def _delete(_: Scope, /, entity_id: str, *, attribute: str | None = None, type: str | None = None) -> Call[None]:
    """Deletes the history of an entity, or of one of its attributes; the entity stays."""
    to = path(*ENTITIES, entity_id) if attribute is None else path(*ENTITIES, entity_id, "attrs", attribute)
    yield Request("DELETE", to, params(type=type))


class History(_sync.Group):
    """The history of entities, blocking."""

    read = _sync.pages(_read)
    aggregate = _sync.pages(_aggregate)
    delete = _sync.call(_delete)


class AsyncHistory(_async.AsyncGroup):
    """The history of entities, for asyncio."""

    read = _async.pages(_read)
    aggregate = _async.pages(_aggregate)
    delete = _async.call(_delete)
