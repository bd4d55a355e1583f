"""Puts names and bodies that the server knows into some of the requests, as random ones rarely get past the first check."""

import json
import os
import zlib
from urllib.parse import quote

import requests
import schemathesis

APPLICATIONS = os.environ["MILLSTREAM_APPLICATIONS"]
TOKEN = {"Authorization": "Bearer " + os.environ["MILLSTREAM_TOKEN"]}
QUERY = {"query": "SELECT temp FROM STREAM(1, TIME)", "stream": "orders"}
JOB = """
version: 1
kind: Job
name: copy
sources:
  orders: { type: stream, config: { topic: orders } }
sinks:
  copied: { type: stream, inputs: [orders], config: { topic: copied } }
"""
ENTITY = {"id": "room", "type": "Room", "temperature": {"value": 21.5}}
UPDATE = {"actionType": "append", "entities": [ENTITY]}
SUBSCRIPTION = {
    "subject": {"entities": [{"idPattern": ".*"}]},
    "notification": {"http": {"url": "http://127.0.0.1:9/"}},
}

# What there is before the first request and again after a deletion.
FIXTURES = [
    ("POST", "/v1/tenants/default", {}),
    ("POST", "/v1/devices/default/thermometer", {}),
    (
        "PUT",
        "/v1/credentials/default/thermometer",
        [{"type": "hashed-password", "auth-id": "thermometer", "secrets": [{"pwd-plain": "hush"}]}],
    ),
    ("PUT", "/api/streams/orders", {"partitions": 1}),
    ("PUT", "/api/streams/copied", {"partitions": 1}),
    ("POST", "/api/streams/orders/records", [{"key": "a", "value": {"temp": 1}}]),
    ("PUT", "/buckets/things", {"partitions": 1}),
    ("PUT", "/kv/things/a", "value"),
    ("POST", "/v2/entities?options=upsert", ENTITY),
    ("POST", "/api/jobs", JOB),
]
# Names of things that are there, by the parameter and the path that has it.
NAMES = {
    "tenant": {"": "default"},
    "device": {"": "thermometer"},
    "stream": {"": "orders"},
    "bucket": {"": "things"},
    "key": {"": "a"},
    "name": {"/v2/": "temperature", "/ngsi-ld/": "temperature", "/api/jobs": "copy"},
    "type": {"": "Room"},
    "category": {"": "all"},
    "id": {"/v2/entities": "room", "/ngsi-ld/": "room"},
}
# Bodies that are taken.
BODIES = {
    "POST /api/streams/{stream}/records": [{"value": 1}],
    "PUT /api/streams/{stream}": {"partitions": 1},
    "PATCH /api/streams/{stream}": {"retention_ms": 3600000},
    "PUT /buckets/{bucket}": {"partitions": 1},
    "POST /api/queries/validate": QUERY,
    "POST /api/queries": QUERY | {"deliver": "wait"},
    "POST /api/tokens": {"name": "made", "roles": ["reader"]},
    "POST /v2/entities": ENTITY,
    "POST /v2/op/update": UPDATE,
    "POST /v2/op/query": {"entities": [{"idPattern": ".*"}]},
    "POST /v2/op/notify": {"data": [ENTITY]},
    "POST /v2/subscriptions": SUBSCRIPTION,
    "PATCH /v2/entities/{id}/attrs": {"temperature": {"value": 22}},
    "POST /v2/entities/{id}/attrs": {"humidity": {"value": 40}},
    "PUT /v2/entities/{id}/attrs": {"temperature": {"value": 23}},
    "PUT /v2/entities/{id}/attrs/{name}": {"value": 24},
    "POST /v1/devices/{tenant}": {},
    "POST /v1/devices/{tenant}/{device}": {},
    "PUT /v1/devices/{tenant}/{device}": {},
    "POST /v1/tenants/{tenant}": {},
    "PUT /v1/tenants/{tenant}": {},
    "PUT /v1/credentials/{tenant}/{device}": FIXTURES[2][2],
}
# Routes whose answers go on, with a change that they tell of at once when asked from the earliest on. What another request
# has made has no change to tell of, and is not asked for.
TAILS = {
    "GET /kv/{bucket}/_watch": ("PUT", "/kv/things/a", "value"),
    "GET /api/streams/{stream}": ("POST", "/api/streams/orders/records", [{"key": "a", "value": {"temp": 1}}]),
}
made = {}


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return json.dumps(value).encode() + b"\n"


def call(method, path, body):
    kind = "application/json"
    if body is JOB:
        kind = "text/plain"
    elif isinstance(body, str):
        kind = "application/octet-stream"
    data = body if isinstance(body, str) else json.dumps(body)
    return requests.request(method, APPLICATIONS + path, data=data, headers=TOKEN | {"Content-Type": kind}, timeout=60)


def restore():
    for method, path, body in FIXTURES:
        answer = call(method, path, body)
        assert answer.status_code < 300 or answer.status_code == 409, (method, path, answer.text)
    jobs = requests.get(APPLICATIONS + "/api/jobs", headers=TOKEN, timeout=60).json()
    made["/api/jobs"] = jobs[0]["id"]
    created = call("POST", "/v2/subscriptions", SUBSCRIPTION)
    assert created.status_code == 201, created.text
    made["/v2/subscriptions"] = created.headers["Location"].rsplit("/", 1)[1]


restore()


def name_of(parameter, path):
    known = NAMES.get(parameter, {}) | (made if parameter == "id" else {})
    fits = [name for prefix, name in known.items() if path.startswith(prefix)]
    return fits[-1] if fits else None


@schemathesis.hook
def before_call(ctx, case, kwargs):
    # The same request is changed in the same way, in whatever order requests come.
    given = repr((case.method, case.path_parameters, case.query, str(case.body)))
    dice = zlib.crc32(given.encode("utf-8", "replace"))
    label = f"{case.method} {case.path}"
    for parameter in case.path_parameters or ():
        name = name_of(parameter, case.path)
        if name is not None and dice % 4 != 0:
            case.path_parameters[parameter] = quote(name, safe="")
        elif label in TAILS:
            case.path_parameters[parameter] = "absent"
    if label in BODIES and dice % 3 == 0:
        case.body, case.media_type = BODIES[label], "application/json"
    if label in ("POST /api/jobs", "POST /api/jobs/validate", "POST /api/jobs/test") and dice % 3 == 0:
        case.body, case.media_type = JOB, "text/plain"
    if label in TAILS:
        call(*TAILS[label])
        case.query = {"from": "earliest"}
        if dice % 2 == 0:
            case.headers["Accept"] = "text/event-stream"
    # A wait for a job or a device would be the whole test's.
    if case.path.endswith("/wait"):
        case.query = {"timeout": "1ms"}
    if case.path.startswith("/api/commands"):
        case.query = (case.query or {}) | {"timeout-ms": "1"}


@schemathesis.hook
def after_call(ctx, case, response):
    if case.method == "DELETE" and response.status_code < 300:
        restore()
