"""confluent-kafka (librdkafka) as a user would write it."""

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

import checks


def admin(address):
    return AdminClient({"bootstrap.servers": address})


def create(address, what, partitions=checks.PARTITIONS):
    topic = checks.new_topic_name(what)
    create_named(address, topic, partitions)
    return topic


def create_named(address, topic, partitions=checks.PARTITIONS):
    client = admin(address)
    created = client.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    created[topic].result(checks.PATIENCE_S)


def produce(address, topic, records, **settings):
    """Sends all; answers the errors of those that were refused."""
    errors = []
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "message.timeout.ms": 20_000, **settings})
    for key, value in records:
        while True:
            try:
                producer.produce(
                    topic, value, key, on_delivery=lambda error, _: errors.append(error) if error else None
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(checks.PATIENCE_S)
    assert left == 0, f"{left} records neither stored nor refused"
    return errors


def read_all(address, topic, count):
    """The first `count` records from the start, by a reader without a group."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
    partitions = reader.list_topics(topic, checks.PATIENCE_S).topics[topic].partitions
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    read = []

    def next_records():
        for message in reader.consume(1000, 0.2):
            assert message.error() is None, message.error()
            read.append((message.partition(), message.offset(), message.key(), message.value()))
        return len(read) >= count

    checks.until(f"{count} records of {topic}", next_records)
    assert not reader.consume(1, 0.3), "more records than were sent"
    reader.close()
    return read


def records(address, compression, acks="all"):
    topic = create(address, f"confluent-{compression}")
    errors = produce(address, topic, checks.records(), **{"compression.type": compression, "acks": acks})
    assert not errors, errors[0]
    checks.check_read_back(read_all(address, topic, checks.RECORDS))


def idempotent(address):
    topic = create(address, "confluent-idempotent")
    errors = produce(address, topic, checks.records(), **{"enable.idempotence": True, "compression.type": "lz4"})
    assert not errors, errors[0]
    checks.check_read_back(read_all(address, topic, checks.RECORDS))


def administer(address):
    client = admin(address)
    topic = create(address, "confluent-admin", 2)
    again = client.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic]
    try:
        again.result(checks.PATIENCE_S)
        raise AssertionError("a topic was created twice")
    except KafkaException as refusal:
        assert refusal.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, refusal
    checks.until("both partitions", lambda: len(client.list_topics(topic, 10).topics[topic].partitions) == 2)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configuration = client.describe_configs([resource])[resource].result(checks.PATIENCE_S)
    assert "retention.ms" in configuration, sorted(configuration)
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(checks.PATIENCE_S)
    checks.until("all partitions", lambda: len(client.list_topics(topic, 10).topics[topic].partitions) == 3)
    assert not produce(address, topic, checks.records(300)), "new partitions take records"
    (third,) = client.delete_records([TopicPartition(topic, 2, 5)]).values()
    assert third.result(checks.PATIENCE_S).low_watermark == 5
    client.delete_topics([topic])[topic].result(checks.PATIENCE_S)
    checks.until("the topic to be gone", lambda: topic not in client.list_topics(timeout=10).topics)


def seek_by_time(address):
    topic = create(address, "confluent-time", 1)
    producer = Producer({"bootstrap.servers": address})
    first_ms = 1_700_000_000_000
    for at in range(100):
        producer.produce(topic, f"value-{at}".encode(), b"key", timestamp=first_ms + at * 1000)
    assert producer.flush(checks.PATIENCE_S) == 0
    reader = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
    (found,) = reader.offsets_for_times([TopicPartition(topic, 0, first_ms + 41_500)], checks.PATIENCE_S)
    assert found.offset == 42, found
    reader.assign([found])
    message = checks.until("a record", lambda: reader.poll(1))
    assert message.error() is None and message.value() == b"value-42", message.value()
    assert message.timestamp()[1] == first_ms + 42_000, message.timestamp()
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), checks.PATIENCE_S)
    assert (low, high) == (0, 100), (low, high)
    reader.close()


def commit(address, topic, group, *offsets):
    """Commits a position in each partition, as a group without members."""
    committing = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    wanted = [TopicPartition(topic, partition, int(offset)) for partition, offset in enumerate(offsets)]
    committed = committing.commit(offsets=wanted, asynchronous=False)
    assert all(of.error is None for of in committed), committed
    committing.close()


def lag(address, topic, group, expected):
    """The lag of a group in partition 0, as a client computes it."""
    reading = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    place = TopicPartition(topic, 0)
    [committed] = reading.committed([place], timeout=checks.PATIENCE_S)
    _, end = reading.get_watermark_offsets(place, timeout=checks.PATIENCE_S)
    assert end - committed.offset == int(expected), (committed, end)
    reading.close()


def login(address, user, secret):
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": secret,
    }


def roles(address, secret):
    def of(user):
        return login(address, user, f"{secret}-{user}")

    def refusal_of(future):
        try:
            future.result(checks.PATIENCE_S)
        except KafkaException as refusal:
            return refusal.args[0].code()
        return None

    topic = checks.new_topic_name("confluent-roles")
    new = NewTopic(topic, num_partitions=1, replication_factor=1)
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    reader, admin = AdminClient(of("reader")), AdminClient(of("admin"))
    assert refusal_of(reader.create_topics([new])[topic]) == denied
    assert refusal_of(admin.create_topics([new])[topic]) is None
    sent = checks.records(100)
    assert {error.code() for error in produce(address, topic, sent, **of("reader"))} == {denied}
    assert produce(address, topic, sent, **of("writer")) == []

    def group_of(user):
        reading = {"group.id": f"of-{user}", "auto.offset.reset": "earliest"}
        consumer = Consumer({**of(user), **reading})
        consumer.subscribe([topic])
        return consumer

    reading, read = group_of("reader"), []

    def next_records():
        read.extend(message for message in reading.consume(100, 0.2) if message.error() is None)
        return len(read) == len(sent)

    checks.until("the records", next_records)
    reading.close()
    writing = group_of("writer")

    def refused():
        message = writing.poll(0.2)
        return message is not None and message.error() and message.error().code()

    assert checks.until("a refusal", refused) in (KafkaError.GROUP_AUTHORIZATION_FAILED, denied)
    writing.close()
    # Another tenant has no such topic, and a wrong secret gets nowhere.
    assert topic not in AdminClient(of("acme")).list_topics(timeout=checks.PATIENCE_S).topics
    errors = []
    wrong = AdminClient({**login(address, "admin", secret), "error_cb": errors.append})

    def told():
        wrong.poll(0.2)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    checks.until("a refused login", told)


if __name__ == "__main__":
    checks.main(
        {
            "records": records,
            "idempotent": idempotent,
            "admin": administer,
            "commit": commit,
            "lag": lag,
            "roles": roles,
            "seek-by-time": seek_by_time,
        }
    )
