"""A bucket's topic read by librdkafka: the same map as over HTTP, with its headers; and nobody else writes to it."""

import json
import urllib.parse
import urllib.request
from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

import checks


def read_map(address, topic):
    """Value, headers and offset of each key that is there, from all partitions up to their ends; and the tombstones."""
    settings = {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False}
    reader = Consumer({**settings, "enable.partition.eof": True})
    partitions = reader.list_topics(topic, checks.PATIENCE_S).topics[topic].partitions
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found, tombstones, ended = {}, 0, set()

    def next_records():
        nonlocal tombstones
        for message in reader.consume(1000, 0.2):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
            elif message.value() is None:
                tombstones += 1
                found.pop(message.key(), None)
            else:
                found[message.key()] = (message.value(), dict(message.headers() or []), message.offset())
        return ended == set(partitions)

    checks.until(f"the end of {topic}", next_records)
    reader.close()
    return found, tombstones


def same_map(address, applications, bucket):
    found, tombstones = read_map(address, f"kv.{bucket}.default")
    with urllib.request.urlopen(f"{applications}/buckets/{bucket}") as answer:
        described = json.load(answer)
    assert len(found) == described["keys"] > 0 and tombstones > 0, (found, tombstones, described)
    assert sum(len(key) + len(value) for key, (value, _, _) in found.items()) == described["bytes"], described
    kinds = set()
    for key, (value, headers, offset) in found.items():
        url = f"{applications}/kv/{bucket}/{urllib.parse.quote(key, safe='')}"
        with urllib.request.urlopen(url) as answer:
            assert (answer.read(), answer.headers["ETag"]) == (value, f'"{offset}"'), key
            told = answer.headers
        expected = headers.get("content-type", b"application/octet-stream").decode()
        assert told["Content-Type"] == expected, (key, told["Content-Type"], headers)
        assert told["X-Meta-Owner"] == (headers["ms-meta-owner"].decode() if "ms-meta-owner" in headers else None), key
        assert told["X-Tags"] == (headers["ms-tags"].decode() if "ms-tags" in headers else None), key
        expires = told["X-Expires"]
        assert (expires is None) == ("ms-expires" not in headers), (key, headers)
        if expires:
            at_ms = datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp() * 1000
            assert round(at_ms) == int(headers["ms-expires"]), (key, expires, headers)
        kinds.update(headers)
    assert kinds == {"content-type", "ms-expires", "ms-meta-owner", "ms-tags", "ms-time"}, kinds


def owners_only(address, topic):
    """Clients that write to it are refused, each in its own way."""
    errors = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 20_000})
    for key, value in [(b"forged", b"value"), (b"kept", None)]:
        producer.produce(topic, value, key, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(checks.PATIENCE_S) == 0
    codes = {error.code() if error else None for error in errors}
    assert len(errors) == 2 and codes == {KafkaError.TOPIC_AUTHORIZATION_FAILED}, errors


if __name__ == "__main__":
    checks.main({"same-map": same_map, "owners-only": owners_only})
