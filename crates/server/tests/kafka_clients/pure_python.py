"""kafka-python, a client that shares no code with Kafka's own or with librdkafka."""

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError

import checks


def create(address, what, partitions=checks.PARTITIONS):
    topic = checks.new_topic_name(what)
    client = KafkaAdminClient(bootstrap_servers=address)
    client.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    client.close()
    return topic


def produce(address, topic, records, **settings):
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=5, **settings)
    sent = [producer.send(topic, key=key, value=value) for key, value in records]
    producer.flush(timeout=checks.PATIENCE_S)
    try:
        for future in sent:
            future.get(timeout=checks.PATIENCE_S)
    finally:
        producer.close()


def reader_of(address, partitions, **settings):
    reader = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False, **settings
    )
    reader.assign(partitions)
    return reader


def read_all(address, topic, count, partitions=checks.PARTITIONS):
    assigned = [TopicPartition(topic, partition) for partition in range(partitions)]
    reader = reader_of(address, assigned)
    reader.seek_to_beginning(*assigned)
    read = []

    def next_records():
        for messages in reader.poll(200).values():
            read.extend((message.partition, message.offset, message.key, message.value) for message in messages)
        return len(read) >= count

    checks.until(f"{count} records of {topic}", next_records)
    ends = reader.end_offsets(assigned)
    assert sum(ends.values()) == count, ends
    reader.close()
    return read


def records(address, compression):
    topic = create(address, f"python-{compression}")
    settings = {} if compression == "none" else {"compression_type": compression}
    produce(address, topic, checks.records(), acks="all", **settings)
    checks.check_read_back(read_all(address, topic, checks.RECORDS))


def idempotent(address):
    topic = create(address, "python-idempotent")
    produce(address, topic, checks.records(), enable_idempotence=True, acks="all")
    checks.check_read_back(read_all(address, topic, checks.RECORDS))


def administer(address):
    client = KafkaAdminClient(bootstrap_servers=address)
    topic = create(address, "python-admin", 2)
    try:
        client.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
        raise AssertionError("a topic was created twice")
    except TopicAlreadyExistsError:
        pass
    checks.until("the topic", lambda: topic in client.list_topics())
    client.delete_topics([topic])
    checks.until("the topic to be gone", lambda: topic not in client.list_topics())
    client.close()


def seek_by_time(address):
    topic = create(address, "python-time", 1)
    producer = KafkaProducer(bootstrap_servers=address)
    first_ms = 1_700_000_000_000
    for at in range(100):
        producer.send(topic, f"value-{at}".encode(), timestamp_ms=first_ms + at * 1000)
    producer.flush(timeout=checks.PATIENCE_S)
    producer.close()
    partition = TopicPartition(topic, 0)
    reader = reader_of(address, [partition])
    found = reader.offsets_for_times({partition: first_ms + 41_500})[partition]
    assert (found.offset, found.timestamp) == (42, first_ms + 42_000), found
    reader.seek(partition, found.offset)
    messages = checks.until("a record", lambda: reader.poll(1000))[partition]
    assert messages[0].value == b"value-42", messages[0]
    assert reader.offsets_for_times({partition: first_ms + 1_000_000})[partition] is None
    reader.close()


def transactions(address):
    topic = create(address, "python-transactions", 1)
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    for at in range(4):
        producer.begin_transaction()
        producer.send(topic, value=f"value-{at}".encode())
        if at % 2 == 0:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    producer.close()
    partition = TopicPartition(topic, 0)
    for isolation, expected in [("read_committed", [0, 2]), ("read_uncommitted", [0, 1, 2, 3])]:
        reader = reader_of(address, [partition], isolation_level=isolation)
        reader.seek_to_beginning(partition)
        read = []

        def next_records():
            for messages in reader.poll(200).values():
                read.extend(message.value for message in messages)
            # The markers have offsets of their own.
            return reader.position(partition) >= 8

        checks.until(f"the end of {topic}", next_records)
        assert read == [f"value-{at}".encode() for at in expected], (isolation, read)
        reader.close()


def roles(address, secret):
    def of(user, password=None):
        return {
            "bootstrap_servers": address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": password or f"{secret}-{user}",
        }

    topic = checks.new_topic_name("python-roles")
    new = NewTopic(topic, num_partitions=1, replication_factor=1)
    reader, admin = KafkaAdminClient(**of("reader")), KafkaAdminClient(**of("admin"))
    try:
        reader.create_topics([new])
        raise AssertionError("a reader has created a topic")
    except TopicAuthorizationFailedError:
        pass
    admin.create_topics([new])
    checks.until("the topic", lambda: topic in reader.list_topics())
    for user, may in (("writer", True), ("reader", False)):
        producer = KafkaProducer(**of(user))
        try:
            producer.send(topic, b"value").get(timeout=checks.PATIENCE_S)
            assert may, f"{user} has produced"
        except KafkaError as refusal:
            # An idempotent producer is told so before it has named a topic.
            assert not may and "AuthorizationFailed" in repr(refusal), f"{user}: {refusal!r}"
        producer.close()
    consumer = KafkaConsumer(topic, group_id="readers", auto_offset_reset="earliest", **of("reader"))
    messages = checks.until("a record", lambda: consumer.poll(1000))
    assert [message.value for of_one in messages.values() for message in of_one] == [b"value"], messages
    consumer.close()
    try:
        # Refused, it tries again until its time is up.
        KafkaAdminClient(**of("admin", secret), bootstrap_timeout_ms=2_000)
        raise AssertionError("a wrong secret was taken")
    except KafkaError:
        pass
    reader.close()
    admin.close()


if __name__ == "__main__":
    checks.main(
        {
            "records": records,
            "idempotent": idempotent,
            "admin": administer,
            "roles": roles,
            "seek-by-time": seek_by_time,
            "transactions": transactions,
        }
    )
