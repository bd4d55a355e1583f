"""Transactions with librdkafka: producers are processes of their own where one is killed or the server is."""

import signal
import subprocess
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import checks
from confluent import create, create_named, produce

FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def producer_of(address, transactional_id, **settings):
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, **settings})
    producer.init_transactions(checks.PATIENCE_S)
    return producer


def send(producer, topic, values):
    """Sends these, and waits until all of them are stored."""
    errors = []
    for value in values:
        on_delivery = lambda error, _: errors.append(error) if error else None
        producer.produce(topic, value.encode(), value.encode(), on_delivery=on_delivery)
    assert producer.flush(checks.PATIENCE_S) == 0 and not errors, errors


def read(address, topic, isolation="read_committed"):
    """All values that a reader sees between the ends that it is told, in order per partition."""
    settings = {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False}
    reader = Consumer({**settings, "isolation.level": isolation, "enable.partition.eof": True})
    partitions = reader.list_topics(topic, checks.PATIENCE_S).topics[topic].partitions
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    values, ended = [], set()

    def next_records():
        for message in reader.consume(1000, 0.2):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return len(ended) == len(partitions)

    checks.until(f"the ends of {topic}", next_records)
    reader.close()
    return values


def refused(call, *arguments):
    """The error with which a call ends."""
    try:
        call(*arguments)
    except KafkaException as refusal:
        return refusal.args[0]
    raise AssertionError(f"{call} was not refused")


def named(prefix, count):
    return [f"{prefix}-{at}" for at in range(count)]


def commit_and_abort(address):
    topic = create(address, "transactions")
    producer = producer_of(address, topic)
    committed = []
    for at in range(6):
        producer.begin_transaction()
        values = named(f"transaction-{at}", 100)
        send(producer, topic, values)
        assert read(address, topic).count(values[0]) == 0, "a record of an open transaction was read"
        assert set(values) <= set(read(address, topic, "read_uncommitted"))
        if at % 2 == 0:
            producer.commit_transaction(checks.PATIENCE_S)
            committed += values
        else:
            producer.abort_transaction(checks.PATIENCE_S)
        found = read(address, topic)
        assert sorted(found) == sorted(committed), (len(found), len(committed))
    assert len(read(address, topic, "read_uncommitted")) == 600


def open_one_holds_back(address):
    """Readers with `read_committed` stop before an open transaction, also at what others append behind it."""
    topic = create(address, "transactions-open", 1)
    holder = producer_of(address, f"{topic}-holder")
    holder.begin_transaction()
    send(holder, topic, ["held"])
    assert not produce(address, topic, [(b"plain", b"plain")])
    other = producer_of(address, f"{topic}-other")
    other.begin_transaction()
    send(other, topic, ["other"])
    other.commit_transaction(checks.PATIENCE_S)
    assert read(address, topic) == []
    assert read(address, topic, "read_uncommitted") == ["held", "plain", "other"]
    holder.abort_transaction(checks.PATIENCE_S)
    assert read(address, topic) == ["plain", "other"]


def zombie(address):
    topic = create(address, "transactions-zombie", 1)
    old = producer_of(address, topic)
    old.begin_transaction()
    send(old, topic, ["old"])
    new = producer_of(address, topic)
    assert refused(old.commit_transaction, checks.PATIENCE_S).code() in FENCED
    new.begin_transaction()
    send(new, topic, ["new"])
    new.commit_transaction(checks.PATIENCE_S)
    assert read(address, topic) == ["new"]


def time_out(address):
    topic = create(address, "transactions-timeout", 1)
    producer = producer_of(address, topic, **{"transaction.timeout.ms": 10_000})
    producer.begin_transaction()
    send(producer, topic, ["late"])
    assert not produce(address, topic, [(b"plain", b"plain")])
    checks.until("the transaction to be aborted", lambda: read(address, topic) == ["plain"])
    refusal = refused(producer.commit_transaction, checks.PATIENCE_S)
    assert refusal.code() in FENCED or refusal.txn_requires_abort(), refusal
    assert read(address, topic) == ["plain"]


def transform(address, source, target, group, pause_after):
    """Copies records in transactions of 10; says how many are sent, and waits to be killed after `pause_after`."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6_000}
    consumer = Consumer({"bootstrap.servers": address, "isolation.level": "read_committed", "enable.auto.commit": False, **settings})
    consumer.subscribe([source])
    producer = producer_of(address, f"{group}-transform")
    count = 0
    while True:
        messages = [message for message in consumer.consume(10, 0.5) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        send(producer, target, [message.value().decode() for message in messages])
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), checks.PATIENCE_S)
        count += len(messages)
        if count >= int(pause_after):
            print("in the middle", flush=True)
            sys.stdin.readline()
        producer.commit_transaction(checks.PATIENCE_S)
        print("committed", count, flush=True)


def begin(arguments, **settings):
    """Another process of this script."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **settings)


def consume_transform_produce(address):
    source, target = create(address, "transactions-source", 2), create(address, "transactions-target", 2)
    values = named("value", 300)
    assert not produce(address, source, [(value.encode(), value.encode()) for value in values])
    group = checks.new_topic_name("transform")
    arguments = [address, "transform", source, target, group]
    killed = begin([*arguments, "100"])
    try:
        checks.until("the middle of a transaction", lambda: killed.stdout.readline() == "in the middle\n")
        assert len(read(address, target)) < len(read(address, target, "read_uncommitted"))
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    again = begin([*arguments, "1000000"])
    try:
        checks.until("all records", lambda: len(read(address, target)) >= len(values))
    finally:
        again.kill()
        again.wait()
    assert sorted(read(address, target)) == sorted(values), "a record is missing or doubled"
    assert len(read(address, target, "read_uncommitted")) > len(values), "nothing was aborted"


def over_a_restart(address, topic, how):
    """Opens a transaction, says so, and ends it once it is told that the server has been killed and is back."""
    create_named(address, topic)
    producer = producer_of(address, topic)
    producer.begin_transaction()
    send(producer, topic, named("before", 10))
    producer.commit_transaction(checks.PATIENCE_S)
    producer.begin_transaction()
    send(producer, topic, named(how, 10))
    print("open", flush=True)
    sys.stdin.readline()
    assert sorted(read(address, topic)) == named("before", 10)
    send(producer, topic, named(f"{how}-more", 10))
    if how == "commit":
        producer.commit_transaction(checks.PATIENCE_S)
    else:
        producer.abort_transaction(checks.PATIENCE_S)
    producer.begin_transaction()
    send(producer, topic, named("after", 10))
    producer.commit_transaction(checks.PATIENCE_S)
    ended = named("commit", 10) + named("commit-more", 10) if how == "commit" else []
    assert sorted(read(address, topic)) == sorted(named("before", 10) + ended + named("after", 10))


def idempotent_in_order(address):
    """One partition, many requests at once: what a broken connection repeats is stored once, in its place."""
    topic = create(address, "idempotent-cut", 1)
    values = [f"value-{at}".encode() for at in range(checks.RECORDS)]
    settings = {"enable.idempotence": True, "batch.num.messages": 50, "retry.backoff.ms": 50, "message.timeout.ms": 200_000}
    errors = produce(address, topic, [(b"key", value) for value in values], **settings)
    assert not errors, errors[0]
    assert read(address, topic) == [value.decode() for value in values]


if __name__ == "__main__":
    checks.main(
        {
            "commit-and-abort": commit_and_abort,
            "open": open_one_holds_back,
            "zombie": zombie,
            "time-out": time_out,
            "transform": transform,
            "consume-transform-produce": consume_transform_produce,
            "restart": over_a_restart,
            "idempotent-in-order": idempotent_in_order,
        }
    )
