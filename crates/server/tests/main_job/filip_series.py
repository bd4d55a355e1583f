"""Time series as filip, a client library of FIWARE users, asks QuantumLeap for them.

Takes the address of the server, whose service `openiot` has two lamps with five values each, one a minute from
2018-06-27T10:00:00Z on. Ends with an error at the first answer that is not as QuantumLeap gives it.
"""

import sys

import requests
from filip.clients.ngsi_v2 import QuantumLeapClient
from filip.models.base import FiwareHeader

LAMPS = ["Lamp:001", "Lamp:002"]
MINUTES = [f"2018-06-27T10:0{minute}:00+00:00" for minute in range(5)]


def same(what, answered, expected):
    assert answered == expected, f"{what}: {answered!r} instead of {expected!r}"


def times(series):
    return [moment.isoformat() for moment in series.index]


def values(series):
    return {attribute.attrName: attribute.values for attribute in series.attributes}


def of_one(client):
    whole = client.get_entity_by_id("Lamp:001", entity_type="Lamp")
    same("the entity", (whole.entityId, whole.entityType, times(whole)), ("Lamp:001", "Lamp", MINUTES))
    same("its values", values(whole), {"luminosity": [0, 1, 2, 3, 4], "state": ["on", None, "off", None, "on"]})
    same("as a table", whole.to_pandas().shape, (5, 2))
    page = client.get_entity_by_id("Lamp:001", attrs="luminosity", offset=1, limit=2)
    same("a page", (times(page), values(page)), (MINUTES[1:3], {"luminosity": [1, 2]}))
    last = client.get_entity_values_by_id("Lamp:001", attrs="luminosity", last_n=2)
    same("the last ones", values(last), {"luminosity": [3, 4]})
    one = client.get_entity_attr_by_id("Lamp:001", "luminosity", from_date=MINUTES[1][:19], to_date=MINUTES[3][:19])
    same("an attribute", (one.entityId, values(one)), ("Lamp:001", {"luminosity": [1, 2, 3]}))
    greatest = client.get_entity_attr_values_by_id(
        "Lamp:001", "luminosity", aggr_method="max", aggr_period="hour")
    same("the greatest of an hour", (times(greatest), values(greatest)), (MINUTES[:1], {"luminosity": [4]}))


def of_many(client):
    same("entities", [(one.entityId, one.entityType, one.index.isoformat()) for one in client.get_entities()],
         [(lamp, "Lamp", MINUTES[-1]) for lamp in LAMPS])
    same("by pattern", [one.entityId for one in client.get_entities(id_pattern="2$")], LAMPS[1:])
    whole = client.get_entity_by_type("Lamp", attrs="luminosity")
    same("a type", [(one.entityId, values(one)["luminosity"][-1]) for one in whole], [("Lamp:001", 4), ("Lamp:002", 104)])
    last = client.get_entity_values_by_type("Lamp", entity_id="Lamp:002", attrs="luminosity", last_n=1)
    same("the last of one of them", [values(one) for one in last], [{"luminosity": [104]}])
    sums = client.get_entity_attr_by_type("Lamp", "luminosity", aggr_method="sum", aggr_period="day")
    same("sums", [values(one) for one in sums], [{"luminosity": [10]}, {"luminosity": [510]}])
    counts = client.get_entity_attr_values_by_type("Lamp", "luminosity", aggr_method="count", aggr_period="minute")
    same("counts", [values(one) for one in counts], [{"luminosity": [1] * 5}] * 2)
    everything = client.get_entity_by_attrs(entity_type="Lamp", limit=1)
    same("everything", [(one.entityId, values(one)) for one in everything],
         [("Lamp:001", {"luminosity": [0]}), ("Lamp:001", {"state": ["on"]})])


def refused(what, code, ask):
    try:
        ask()
    except requests.exceptions.RequestException as error:
        while error.response is None and error.__cause__ is not None:
            error = error.__cause__
        same(what, error.response.status_code, code)
        return
    raise AssertionError(f"{what} was not refused")


def deletions(client):
    client.delete_entity("Lamp:001", "Lamp")
    refused("a deleted history", 404, lambda: client.get_entity_by_id("Lamp:001", entity_type="Lamp"))
    client.delete_entity_type("Lamp")
    refused("a deleted type", 404, lambda: client.get_entity_by_type("Lamp"))


def main(url):
    header = FiwareHeader(service="openiot", service_path="/")
    with QuantumLeapClient(url=f"{url}/quantumleap/", fiware_header=header) as client:
        same("the version", "version" in client.get_version(), True)
        same("the health", client.get_health(), {"status": "pass"})
        for part in (of_one, of_many, deletions):
            part(client)
    print("answers as expected")


if __name__ == "__main__":
    main(sys.argv[1])
