"""Clients that go on while the server is killed and started again, over and over: whatever they were told holds."""

import itertools
import sys
import threading
import traceback

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import checks
from confluent import create
from transactions import producer_of, read

PARTITIONS = 2
# So long that no client gives up: a server that is started again comes back.
NEVER_MS = 1_000_000
# Records of the idempotent producer that are on their way at a time.
IN_FLIGHT = 200


class Worker(threading.Thread):
    """Works in rounds until it is told to stop."""

    def __init__(self, address, stop):
        super().__init__(daemon=True)
        self.address, self.stop, self.rounds, self.failure = address, stop, 0, None

    def run(self):
        try:
            while not self.stop.is_set():
                self.round()
                self.rounds += 1
        except BaseException:
            self.failure = traceback.format_exc()


class Idempotent(Worker):
    """Sends numbers, each to the partition that it belongs to, many at a time."""

    def __init__(self, address, stop):
        super().__init__(address, stop)
        self.topic, self.sent, self.acked, self.errors = create(address, "crash-idempotent", PARTITIONS), 0, 0, []
        settings = {"enable.idempotence": True, "linger.ms": 1, "retry.backoff.ms": 50, "batch.num.messages": 20}
        self.producer = Producer({"bootstrap.servers": address, "message.timeout.ms": NEVER_MS, **settings})

    def delivered(self, error, _):
        self.acked += 1
        if error:
            self.errors.append(error)

    def round(self):
        for _ in range(20):
            partition = self.sent % PARTITIONS
            self.producer.produce(self.topic, str(self.sent), partition=partition, on_delivery=self.delivered)
            self.sent += 1
        goal = self.acked + 20
        while self.sent - self.acked > IN_FLIGHT or (self.acked < goal and not self.stop.is_set()):
            self.producer.poll(0.05)

    def check(self):
        assert self.producer.flush(checks.PATIENCE_S) == 0 and not self.errors, self.errors
        by_partition = [[] for _ in range(PARTITIONS)]
        for value in read(self.address, self.topic):
            by_partition[int(value) % PARTITIONS].append(int(value))
        for partition, values in enumerate(by_partition):
            assert values == list(range(partition, self.sent, PARTITIONS)), f"partition {partition} of {self.topic}"
        return f"{self.sent} records of an idempotent producer"


class Transacting(Worker):
    """Commits and aborts transactions of some records in every partition."""

    def __init__(self, address, stop):
        super().__init__(address, stop)
        self.topic, self.ended = create(address, "crash-transactions", PARTITIONS), {}
        self.numbers = itertools.count()
        self.take_over()

    def take_over(self):
        settings = {"message.timeout.ms": 60_000, "transaction.timeout.ms": 120_000, "retry.backoff.ms": 50}
        self.producer = producer_of(self.address, self.topic, **settings)

    def round(self):
        number = next(self.numbers)
        commit = number % 4 != 3
        self.producer.begin_transaction()
        try:
            for at in range(6):
                self.producer.produce(self.topic, f"{number}:{at}", partition=at % PARTITIONS)
        except KafkaException:
            commit = False
        while True:
            try:
                if commit:
                    self.producer.commit_transaction(checks.PATIENCE_S)
                else:
                    self.producer.abort_transaction(checks.PATIENCE_S)
                self.ended[number] = "committed" if commit else "aborted"
                return
            except KafkaException as problem:
                error = problem.args[0]
                if error.txn_requires_abort():
                    commit = False
                elif not error.retriable():
                    # It may have ended either way, but as a whole.
                    self.ended[number] = "in doubt"
                    self.take_over()
                    return

    def check(self):
        found = read(self.address, self.topic)
        assert len(found) == len(set(found)), "a record of a transaction is doubled"
        by_number = {}
        for value in found:
            by_number.setdefault(int(value.split(":")[0]), []).append(value)
        for number, how in self.ended.items():
            count = len(by_number.get(number, []))
            allowed = {"committed": {6}, "aborted": {0}, "in doubt": {0, 6}}[how]
            assert count in allowed, f"transaction {number} is {how}, and {count} of its records are read"
        assert set(by_number) <= set(self.ended)
        counts = [sum(how == which for how in self.ended.values()) for which in ("committed", "aborted", "in doubt")]
        return "transactions: {} committed, {} aborted, {} in doubt".format(*counts)


class Reading(Worker):
    """A member of a group that reads the numbers and commits where it stands."""

    def __init__(self, address, stop, topic):
        super().__init__(address, stop)
        self.topic, self.group, self.seen, self.committed = topic, checks.new_topic_name("crash-group"), set(), {}
        self.commits = 0
        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6_000}
        self.consumer = Consumer({"bootstrap.servers": address, "group.id": self.group, **settings})
        self.consumer.subscribe([topic], on_assign=self.assigned)

    def check_position(self, found):
        known = self.committed.get(found.partition)
        assert known is None or found.offset >= known, f"{found} was committed at {known}"

    def assigned(self, consumer, partitions):
        """What was acknowledged is where it goes on."""
        for found in consumer.committed(partitions, checks.PATIENCE_S):
            self.check_position(found)

    def round(self):
        messages = [message for message in self.consumer.consume(50, 0.2) if message.error() is None]
        self.seen.update(int(message.value()) for message in messages)
        ends = {message.partition(): message.offset() + 1 for message in messages}
        if not ends and not self.stop.is_set():
            self.rounds -= 1
            return
        try:
            positions = [TopicPartition(self.topic, partition, offset) for partition, offset in ends.items()]
            if positions:
                self.consumer.commit(offsets=positions, asynchronous=False)
                self.committed.update(ends)
                self.commits += 1
        except KafkaException:
            # Not acknowledged: from the last one that was, it reads again.
            pass

    def check(self, sent):
        self.stop.clear()

        def all_seen():
            self.round()
            return len(self.seen) == sent

        checks.until("the group to have read every record", all_seen)
        for found in self.consumer.committed([TopicPartition(self.topic, at) for at in range(PARTITIONS)], 60):
            self.check_position(found)
        self.consumer.close()
        return f"{self.commits} commits of a group"


def crash(address, kills):
    """Says `open` whenever each has got further, and goes on until it was told to so often."""
    stop = threading.Event()
    idempotent, transacting = Idempotent(address, stop), Transacting(address, stop)
    workers = [idempotent, transacting, Reading(address, threading.Event(), idempotent.topic)]
    for worker in workers:
        worker.start()

    def further(than):
        failures = [worker.failure for worker in workers if worker.failure]
        assert not failures, failures[0]
        # Not a busy wait: each look is a tenth of a second after the last.
        threading.Event().wait(0.1)
        return all(worker.rounds > rounds for worker, rounds in zip(workers, than))

    for _ in range(int(kills)):
        before = [worker.rounds for worker in workers]
        checks.until("every client to go on", lambda: further(before))
        print("open", flush=True)
        sys.stdin.readline()
    before = [worker.rounds for worker in workers]
    checks.until("every client to go on", lambda: further(before))
    for worker in workers:
        worker.stop.set()
    for worker in workers:
        worker.join(checks.PATIENCE_S)
        assert not worker.is_alive() and not worker.failure, worker.failure
    for said in (idempotent.check(), transacting.check(), workers[2].check(idempotent.sent)):
        print(said, file=sys.stderr, flush=True)


if __name__ == "__main__":
    checks.main({"crash": crash})
