"""Client of Millstream: devices, entities, live queries, streams and keys.

from millstream import Client

with Client("http://127.0.0.1:8000") as client:
    with client.queries.live("SELECT temp FROM STREAM() WHERE temp > 20") as rows:
        for row in rows:
            print(row["temp"])
"""

from ._async import AsyncPages, AsyncStream
from ._sync import Pages, Stream
from .client import AsyncClient, Client
from .devices import Command, CommandAnswer, Device
from .entities import Entity
from .errors import (
    AuthenticationError,
    ConflictError,
    ConnectionFailed,
    InvalidError,
    MillstreamError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionFailedError,
    ProblemError,
    QueryFailed,
    RecordsLost,
    StreamFailed,
    TooManyRequestsError,
    UnavailableError,
)
from .history import Aggregate, Point
from .jobs import Job
from .kv import Item, Value
from .queries import Answer, AsyncLiveQuery, LiveQuery, Window
from .streams import Appended, Record, Text

__all__ = [
    "Aggregate",
    "Answer",
    "Appended",
    "AsyncClient",
    "AsyncLiveQuery",
    "AsyncPages",
    "AsyncStream",
    "AuthenticationError",
    "Client",
    "Command",
    "CommandAnswer",
    "ConflictError",
    "ConnectionFailed",
    "Device",
    "Entity",
    "InvalidError",
    "Item",
    "Job",
    "LiveQuery",
    "MillstreamError",
    "NotFoundError",
    "Pages",
    "PermissionDeniedError",
    "Point",
    "PreconditionFailedError",
    "ProblemError",
    "QueryFailed",
    "Record",
    "RecordsLost",
    "Stream",
    "StreamFailed",
    "Text",
    "TooManyRequestsError",
    "UnavailableError",
    "Value",
    "Window",
]
