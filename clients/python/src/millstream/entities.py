"""Entities over NGSI-v2, as values by name unless metadata are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from . import _async, _sync
from ._listing import Listing, Page
from ._request import Call, Request, Scope, json_request, params, path

Entity: TypeAlias = dict[str, Any]
"""`id`, `type` and the attributes: `{"id": "Room1", "type": "Room", "temperature": 21.5}`.

With `metadata=True` an attribute is `{"type": "Number", "value": 21.5, "metadata": {}}`.
"""

PAGE_ENTITIES = 1000


def _options(*, metadata: bool) -> str | None:
    return None if metadata else "keyValues"


def _get(
    _: Scope, /, entity_id: str, *, type: str | None = None, attrs: Sequence[str] = (), metadata: bool = False
) -> Call[Entity]:
    """Reads an entity; `type` is needed where several entities have its id."""
    query = params(type=type, attrs=",".join(attrs) or None, options=_options(metadata=metadata))
    response = yield Request("GET", path("v2", "entities", entity_id), query)
    entity: Entity = response.json()
    return entity


def _list(
    _: Scope,
    /,
    *,
    type: str | None = None,
    q: str | None = None,
    mq: str | None = None,
    id_pattern: str | None = None,
    attrs: Sequence[str] = (),
    order_by: str | None = None,
    georel: str | None = None,
    geometry: str | None = None,
    coords: str | None = None,
    metadata: bool = False,
) -> Listing[Entity]:
    """Lists entities, oldest first. `q` filters values, as in `temperature>20;name~=^k`, and `mq` metadata.

    `georel`, `geometry` and `coords` filter locations; `order_by` names attributes, with a `!` before one for
    descending order.
    """
    query = params(
        type=type,
        q=q,
        mq=mq,
        idPattern=id_pattern,
        attrs=",".join(attrs) or None,
        orderBy=order_by,
        georel=georel,
        geometry=geometry,
        coords=coords,
        options=_options(metadata=metadata),
        limit=PAGE_ENTITIES,
    )

    def page(offset: int = 0) -> Call[Page[Entity]]:
        response = yield Request("GET", "/v2/entities", query | params(offset=offset))
        entities: list[Entity] = response.json()
        is_full = len(entities) == PAGE_ENTITIES
        return Page(entities, (lambda: page(offset + PAGE_ENTITIES)) if is_full else None)

    return Listing(page, lambda entity: entity)


def _upsert(_: Scope, /, *entities: Mapping[str, Any], metadata: bool = False) -> Call[None]:
    """Makes entities, or changes those that exist; attributes that are not named stay.

    Values may be operators, such as `{"$inc": 1}`. Everything is checked before anything is applied, then each entity
    changes as a whole.
    """
    update = {"actionType": "append", "entities": entities}
    yield json_request("POST", "/v2/op/update", update, params=params(options=_options(metadata=metadata)))


def _update(
    _: Scope, /, entity_id: str, attrs: Mapping[str, Any], *, type: str | None = None, metadata: bool = False
) -> Call[None]:
    """Sets attributes of an entity that exists, or adds them; values may be operators, such as `{"$inc": 1}`."""
    query = params(type=type, options=_options(metadata=metadata))
    yield json_request("POST", path("v2", "entities", entity_id, "attrs"), attrs, params=query)


def _delete(_: Scope, /, entity_id: str, *, type: str | None = None) -> Call[None]:
    """Deletes an entity; its history stays."""
    yield Request("DELETE", path("v2", "entities", entity_id), params(type=type))


class Entities(_sync.Group):
    """Entities, blocking."""

    get = _sync.call(_get)
    list = _sync.pages(_list)
    upsert = _sync.call(_upsert)
    update = _sync.call(_update)
    delete = _sync.call(_delete)


class AsyncEntities(_async.AsyncGroup):
    """Entities, for asyncio."""

    get = _async.call(_get)
    list = _async.pages(_list)
    upsert = _async.call(_upsert)
    update = _async.call(_update)
    delete = _async.call(_delete)
