"""Entities, attributes, batches, queries, types and subscriptions as filip, a FIWARE client library, asks for them.

Takes the address of the server. Ends with an error at the first answer that is not as NGSI-v2 says.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import requests
from filip.clients.ngsi_v2 import ContextBrokerClient
from filip.models.base import FiwareHeader
from filip.models.ngsi_v2.base import EntityPattern
from filip.models.ngsi_v2.context import (
    ActionType,
    ContextAttribute,
    ContextEntity,
    ContextEntityKeyValues,
    NamedContextAttribute,
    Query,
)
from filip.models.ngsi_v2.registrations import Registration
from filip.models.ngsi_v2.subscriptions import Message, Subscription
from filip.utils.simple_ql import QueryString

seen = 0


def same(what, answered, expected):
    """What was answered is what NGSI-v2 says."""
    global seen
    seen += 1
    assert answered == expected, f"{what}: {answered!r} instead of {expected!r}"


def refused(what, code, name, ask):
    """The server refuses with this code and name."""
    global seen
    seen += 1
    try:
        ask()
    except requests.exceptions.RequestException as error:
        # filip wraps the answer in an error of its own.
        while error.response is None and error.__cause__ is not None:
            error = error.__cause__
        answer = error.response if error.response is not None else error.args[0].response
        assert answer.status_code == code, f"{what}: {answer.status_code}"
        assert answer.json()["error"] == name, f"{what}: {answer.text}"
        return
    raise AssertionError(f"{what} was not refused")


def names(entities):
    return sorted(entity.id for entity in entities)


def room(number, temperature):
    entity = ContextEntity(id=f"urn:ngsi-ld:Room:{number}", type="Room")
    entity.add_attributes(
        [
            NamedContextAttribute(name="temperature", type="Number", value=temperature,
                                  metadata={"quality": {"type": "Text", "value": "good"}}),
            NamedContextAttribute(name="name", type="Text", value=f"room {number}"),
            # filip has no geo:json; this older form it has.
            NamedContextAttribute(name="location", type="geo:point", value=f"{40.4 + number / 100}, -3.7"),
        ]
    )
    return entity


def entities(client):
    """Creates, reads, replaces, refuses."""
    first = room(1, 20.5)
    client.post_entity(first)
    same("existence", client.does_entity_exist(first.id, "Room"), True)
    same("nonexistence", client.does_entity_exist("nobody", "Room"), False)
    read = client.get_entity(first.id, "Room")
    same("the entity", read.model_dump(exclude_none=True), first.model_dump(exclude_none=True))
    refused("a second creation", 422, "Unprocessable", lambda: client.post_entity(first))
    refused("an unknown entity", 404, "NotFound", lambda: client.get_entity("nobody"))
    values = client.get_entity(first.id, response_format="keyValues")
    same("key values", (values.temperature, values.name), (20.5, "room 1"))
    changed = room(1, 21)
    client.post_entity(changed, update=True)
    same("the updated value", client.get_attribute_value(first.id, "temperature"), 21)
    changed.add_attributes([NamedContextAttribute(name="floor", type="Number", value=3)])
    client.update_entity(changed)
    same("the appended attribute", client.get_attribute_value(first.id, "floor"), 3)
    client.override_entity(room(1, 22))
    same("attributes after a replacement", sorted(client.get_entity_attributes(first.id)), ["location", "name", "temperature"])
    client.patch_entity(room(1, 23))
    same("the patched value", client.get_attribute_value(first.id, "temperature"), 23)
    plain = ContextEntityKeyValues(id="urn:ngsi-ld:Room:plain", type="Plain", size=7)
    client.post_entity(plain, key_values=True)
    same("a plain value", client.get_attribute_value(plain.id, "size"), 7)
    client.delete_entity(plain.id, "Plain")
    same("after deletion", client.does_entity_exist(plain.id, "Plain"), False)
    refused("a second deletion", 404, "NotFound", lambda: client.delete_entity(plain.id, "Plain"))


def attributes(client):
    """Reads, updates, appends, deletes one attribute or several."""
    entity = "urn:ngsi-ld:Room:1"
    attribute = client.get_attribute(entity, "temperature")
    same("an attribute", (attribute.value, attribute.type, attribute.metadata["quality"].value), (23, "Number", "good"))
    client.update_attribute_value(entity_id=entity, attr_name="temperature", value=24.25)
    same("a number", client.get_attribute_value(entity, "temperature"), 24.25)
    client.update_attribute_value(entity_id=entity, attr_name="name", value="salon")
    same("a text", client.get_attribute_value(entity, "name"), "salon")
    same("metadata stay", client.get_attribute(entity, "temperature").metadata["quality"].value, "good")
    client.update_entity_attribute(entity, ContextAttribute(type="Number", value=25), attr_name="temperature")
    same("a whole attribute", client.get_attribute_value(entity, "temperature"), 25)
    client.update_or_append_entity_attributes(entity, [NamedContextAttribute(name="tags", type="StructuredValue", value=["a"])])
    same("an array", client.get_attribute_value(entity, "tags"), ["a"])
    client.update_existing_entity_attributes(entity, [NamedContextAttribute(name="tags", type="StructuredValue", value={"b": 1})])
    same("an object", client.get_attribute_value(entity, "tags"), {"b": 1})
    refused("strictly appended", 422, "Unprocessable", lambda: client.update_or_append_entity_attributes(
        entity, [NamedContextAttribute(name="tags", type="Text", value="x")], append_strict=True))
    refused("no such attribute to update", 422, "Unprocessable", lambda: client.update_existing_entity_attributes(
        entity, [NamedContextAttribute(name="missing", type="Text", value="x")]))
    client.delete_entity_attribute(entity, "tags")
    refused("a deleted attribute", 404, "NotFound", lambda: client.get_attribute(entity, "tags"))


def batches(client):
    """Every action of a batch."""
    rooms = [room(number, 10 + number) for number in range(2, 32)]
    client.update(entities=rooms, action_type=ActionType.APPEND)
    same("entities of a batch", len(client.get_entity_list(entity_types=["Room"])), 31)
    refused("a strict batch", 422, "Unprocessable",
            lambda: client.update(entities=rooms[:1], action_type=ActionType.APPEND_STRICT))
    client.update(entities=[room(2, 99)], action_type=ActionType.UPDATE)
    same("an updated one", client.get_attribute_value("urn:ngsi-ld:Room:2", "temperature"), 99)
    client.update(entities=[room(2, 12)], action_type=ActionType.REPLACE)
    same("a replaced one", client.get_attribute_value("urn:ngsi-ld:Room:2", "temperature"), 12)
    client.update(entities=[ContextEntity(id="urn:ngsi-ld:Room:31", type="Room")], action_type=ActionType.DELETE)
    same("a deleted one", client.does_entity_exist("urn:ngsi-ld:Room:31", "Room"), False)
    refused("an unknown one", 404, "NotFound",
            lambda: client.update(entities=[room(77, 1)], action_type=ActionType.UPDATE))
    message = Message(subscriptionId="5f3e1b7c9d8a4e2f6b1c0a9d", data=[room(40, 5)])
    client.notify(message)
    same("a notified one", client.get_attribute_value("urn:ngsi-ld:Room:40", "temperature"), 5)
    client.delete_entity("urn:ngsi-ld:Room:40", "Room")


def queries(client):
    """Filters of lists, order, pages, and a query in a body."""
    same("by id", names(client.get_entity_list(entity_ids=["urn:ngsi-ld:Room:2", "urn:ngsi-ld:Room:3"])),
         ["urn:ngsi-ld:Room:2", "urn:ngsi-ld:Room:3"])
    same("by pattern", names(client.get_entity_list(id_pattern="Room:3$")), ["urn:ngsi-ld:Room:3"])
    warm = QueryString(qs=[("temperature", ">", 37), ("temperature", "<", 40)])
    same("by q", names(client.get_entity_list(q=warm)), ["urn:ngsi-ld:Room:28", "urn:ngsi-ld:Room:29"])
    same("by mq", len(client.get_entity_list(mq="temperature.quality==good", entity_types=["Room"])), 29)
    near = client.get_entity_list(georel="near;maxDistance:1500", geometry="point", coords="40.5,-3.7")
    same("near a point", names(near), ["urn:ngsi-ld:Room:10", "urn:ngsi-ld:Room:11", "urn:ngsi-ld:Room:9"])
    coldest = client.get_entity_list(order_by="temperature", entity_types=["Room"], limit=2)
    same("in order", [entity.id for entity in coldest], ["urn:ngsi-ld:Room:2", "urn:ngsi-ld:Room:3"])
    query = Query(entities=[EntityPattern(idPattern="Room", type="Room")], attrs=["temperature"],
                  expression={"q": "temperature>38"})
    found = client.query(query=query, response_format="keyValues")
    same("a query in a body", sorted(entity.temperature for entity in found), [39, 40])
    refused("a malformed georel", 400, "BadRequest", lambda: client.get_entity_list(
        georel="near;maxDistance:x", geometry="point", coords="1,1"))


def types(client):
    """Types with their attributes."""
    client.post_entity(ContextEntity(id="urn:ngsi-ld:Lamp:1", type="Lamp", on={"type": "Boolean", "value": True}))
    known = client.get_entity_types()
    same("types", [kind["type"] for kind in known], ["Lamp", "Room"])
    lamp = client.get_entity_type("Lamp")
    same("a type", (lamp["count"], lamp["attrs"]["on"]["types"]), (1, ["Boolean"]))
    refused("an unknown type", 404, "NotFound", lambda: client.get_entity_type("Nothing"))


def subscriptions(client):
    """A subscription is made, read, notified, changed and deleted."""
    heard = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.put((json.loads(body), self.headers["fiware-service"], self.headers["fiware-servicepath"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = Subscription.model_validate({
        "description": "warm rooms",
        "subject": {"entities": [{"idPattern": ".*", "type": "Room"}],
                    "condition": {"attrs": ["temperature"], "expression": {"q": "temperature>50"}}},
        "notification": {"http": {"url": f"http://127.0.0.1:{server.server_port}/"}, "attrs": ["temperature"],
                         "metadata": ["quality"]},
    })
    identifier = client.post_subscription(made)
    same("the id", len(identifier), 24)
    read = client.get_subscription(identifier)
    same("the subscription", (read.description, read.status.value, read.subject.condition.attrs),
         ("warm rooms", "active", ["temperature"]))
    same("the same again", client.post_subscription(made), identifier)
    same("all subscriptions", [one.id for one in client.get_subscription_list()], [identifier])
    client.update_attribute_value(entity_id="urn:ngsi-ld:Room:5", attr_name="temperature", value=40)
    client.update_attribute_value(entity_id="urn:ngsi-ld:Room:5", attr_name="temperature", value=60)
    body, service, path = heard.get(timeout=60)
    message = Message.model_validate(body)
    same("who is notified", (message.subscriptionId, service, path), (identifier, "filip", "/house"))
    same("of what", [(entity.id, entity.temperature.value) for entity in message.data], [("urn:ngsi-ld:Room:5", 60)])
    read.description = "very warm rooms"
    client.update_subscription(read)
    same("the changed one", client.get_subscription(identifier).description, "very warm rooms")
    client.delete_subscription(identifier)
    refused("the deleted one", 404, "NotFound", lambda: client.get_subscription(identifier))
    server.shutdown()


def registrations(client):
    """A context provider is registered, asked and left."""

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            humidity = {"type": "Number", "value": 47, "metadata": {}}
            body = json.dumps([{**asked["entities"][0], "humidity": humidity}]).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    entity = "urn:ngsi-ld:Room:1"
    made = Registration.model_validate({
        "description": "humidity of a room",
        "dataProvided": {"entities": [{"id": entity, "type": "Room"}], "attrs": ["humidity"]},
        "provider": {"http": {"url": f"http://127.0.0.1:{server.server_port}/weather"}},
        "expires": "2050-01-01T00:00:00Z",
    })
    identifier = client.post_registration(made)
    read = client.get_registration(identifier)
    same("the registration", read.model_dump(exclude={"id"}), made.model_dump(exclude={"id"}))
    same("all registrations", [one.id for one in client.get_registration_list()], [identifier])
    same("the provider's value", client.get_attribute_value(entity, "humidity", entity_type="Room"), 47)
    whole = client.get_entity(entity, "Room")
    same("both values", (whole.humidity.value, whole.temperature.value), (47, 25))
    refused("a change, which Orion has not", 405, "MethodNotAllowed", lambda: client.update_registration(read))
    client.delete_registration(identifier)
    refused("the deleted one", 404, "NotFound", lambda: client.get_registration(identifier))
    refused("its value", 404, "NotFound", lambda: client.get_attribute_value(entity, "humidity", entity_type="Room"))
    server.shutdown()


def about(client):
    """What clients look at to see who is there."""
    same("the version", "orion" in client.get_version(), True)
    same("the statistics", "uptime_in_secs" in client.get_statistics(), True)


def main(url):
    header = FiwareHeader(service="filip", service_path="/house")
    with ContextBrokerClient(url=url, fiware_header=header) as client:
        for part in (entities, attributes, batches, queries, types, subscriptions, registrations, about):
            part(client)
            print(part.__name__, flush=True)
        client.delete_entities(client.get_entity_list())
        same("nothing is left", client.get_entity_list(), [])
    print(f"{seen} answers as expected")


if __name__ == "__main__":
    main(sys.argv[1])
