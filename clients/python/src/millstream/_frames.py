"""Rows into frames. pandas is an extra: it is imported when the first frame is made."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    try:
        import pandas as pd  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError("frames need pandas; install it with: pip install 'millstream[pandas]'") from missing
    return pd.DataFrame.from_records([dict(row) for row in rows])


def first(items: Iterable[T], count: int | None) -> list[T]:
    return list(itertools.islice(items, count))


async def afirst(items: AsyncIterable[T], count: int | None) -> list[T]:
    taken: list[T] = []
    if count == 0:
        return taken
    async for item in items:
        taken.append(item)
        if len(taken) == count:
            break
    return taken


def row_of(value: Any) -> Mapping[str, Any]:
    """An object is a row; anything else is its only column, as in a query of whole records."""
    return value if isinstance(value, dict) else {"payload": value}
