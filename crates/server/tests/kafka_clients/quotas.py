"""Clients over their rate: told to wait, and slowed down; others are not."""

import threading
import time

from confluent_kafka import Producer
from kafka import KafkaProducer

import checks
from confluent import create

RATE = 20_000
# A second's worth may have been saved up.
COUNT, SIZE = 12, 10_000
AT_LEAST_S = (COUNT * SIZE - RATE) / RATE - 2


def librdkafka(address):
    topic = create(address, "quota", 1)
    waits, errors = [], []

    def producer_of(name):
        waited = lambda event: waits.append((name, event.throttle_time))
        return Producer({"bootstrap.servers": address, "client.id": name, "throttle_cb": waited, "linger.ms": 0})

    def send(producer, count, size):
        for _ in range(count):
            producer.produce(topic, b"x" * size, on_delivery=lambda error, _: error and errors.append(error))
            assert producer.flush(checks.PATIENCE_S) == 0

    start = time.monotonic()
    greedy = threading.Thread(target=send, args=(producer_of("greedy"), COUNT, SIZE))
    greedy.start()
    checks.until("the greedy one to be told to wait", lambda: waits or time.sleep(0.05))
    send(producer_of("modest"), 10, 100)
    greedy.join()
    took_s = time.monotonic() - start
    assert took_s >= AT_LEAST_S, f"{COUNT * SIZE} bytes took {took_s} s"
    assert not errors and {name for name, _ in waits} == {"greedy"}, (errors, waits)


def kafka_python(address):
    topic = create(address, "quota-python", 1)
    producer = KafkaProducer(bootstrap_servers=address, client_id="python", acks="all")
    start = time.monotonic()
    for _ in range(COUNT):
        producer.send(topic, b"x" * SIZE).get(timeout=checks.PATIENCE_S)
    took_s = time.monotonic() - start
    producer.close()
    assert took_s >= AT_LEAST_S, f"{COUNT * SIZE} bytes took {took_s} s"


if __name__ == "__main__":
    checks.main({"librdkafka": librdkafka, "kafka-python": kafka_python})
