"""Consumer groups: members are processes of their own, so that one can be killed and one can be stopped."""

import collections
import json
import os
import queue
import signal
import subprocess
import sys
import threading

import kafka
from confluent_kafka import Consumer, KafkaError, KafkaException
from kafka.structs import MemberState

import checks
from confluent import create, produce

SESSION_MS = 6_000
# Longer than a rebalance takes; a poll ends earlier when there are records.
JOIN_POLL_MS = 5_000


class Member:
    """A process that consumes; what it says arrives line by line."""

    def __init__(self, said, name, address, topic, group, client):
        self.name, self.partitions = name, None
        command = [sys.executable, __file__, address, f"member-{client}", topic, group]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.listening = threading.Thread(target=self._listen, args=(said,), daemon=True)
        self.listening.start()

    def _listen(self, said):
        for line in self.process.stdout:
            said.put((self, line.split()))

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()


class JavaMember(Member):
    """Kafka's own Java consumer, in the class that tells of itself by JSON."""

    # With the classic protocol members choose their timeout.
    PROTOCOL = ["--session-timeout", str(SESSION_MS)]

    def __init__(self, said, name, address, topic, group, tools):
        self.name, self.partitions, self.owned = name, None, set()
        command = [tools, "kafka-tools", "org.apache.kafka.tools.VerifiableConsumer", "--verbose"]
        command += ["--bootstrap-server", address, "--topic", topic, "--group-id", group]
        command += ["--reset-policy", "earliest", *self.PROTOCOL]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.listening = threading.Thread(target=self._listen, args=(said,), daemon=True)
        self.listening.start()

    def _listen(self, said):
        for line in self.process.stdout:
            event = json.loads(line)
            # All partitions, or with the consumer protocol those that come and go.
            concerned = {str(of["partition"]) for of in event.get("partitions", [])}
            if event["name"] == "partitions_assigned":
                self.owned |= concerned
                said.put((self, ["partitions", *self.owned]))
            elif event["name"] == "partitions_revoked":
                self.owned -= concerned
                said.put((self, ["partitions", *self.owned]))
            elif event["name"] == "record_data":
                said.put((self, ["value", event["value"]]))
            elif event["name"] == "shutdown_complete":
                said.put((self, ["left"]))

    def tell(self, word):
        assert word == "leave", word
        self.process.terminate()


class JavaConsumerProtocolMember(JavaMember):
    """The same, with the protocol of KIP-848."""

    PROTOCOL = ["--group-protocol", "consumer"]


class Group:
    """What all members said so far."""

    def __init__(self, address, topic, client="librdkafka", tools=None):
        self.address, self.topic, self.name = address, topic, checks.new_topic_name("group")
        self.client, self.tools = client, tools
        self.said, self.members = queue.Queue(), []
        self.processed, self.answers = collections.Counter(), []

    def join(self):
        java = {"java": JavaMember, "java-kip-848": JavaConsumerProtocolMember}.get(self.client)
        kind, client = (java, self.tools) if java else (Member, self.client)
        member = kind(self.said, f"member-{len(self.members)}", self.address, self.topic, self.name, client)
        self.members.append(member)
        return member

    def hear(self):
        try:
            member, words = self.said.get(timeout=0.2)
        except queue.Empty:
            return
        if words[0] == "value":
            self.processed[words[1]] += 1
        elif words[0] == "partitions":
            member.partitions = set(words[1:])
        else:
            self.answers.append((member, words))

    def wait_for(self, what, holds):
        def heard():
            self.hear()
            return holds()

        return checks.until(what, heard)

    def wait_for_shares(self, *sizes):
        """Until the partitions are divided among that many members, these many each, none twice."""

        def divided():
            shares = [member.partitions for member in self.members if member.partitions]
            together = [partition for share in shares for partition in share]
            return sorted(map(len, shares)) == sorted(sizes) and len(together) == len(set(together))

        self.wait_for(f"shares of {sizes}", divided)

    def wait_for_values(self, values):
        self.wait_for("every record to be processed", lambda: all(value in self.processed for value in values))

    def end(self):
        for member in self.members:
            member.end()


def sent(address, topic, first, count):
    """Sends records, and answers their values."""
    values = [f"value-{at}" for at in range(first, first + count)]
    errors = produce(address, topic, [(value.encode(), value.encode()) for value in values])
    assert not errors, errors[0]
    return values


def told_by_lines():
    """What arrives on standard input, line by line."""
    told = queue.Queue()
    threading.Thread(target=lambda: [told.put(line.strip()) for line in sys.stdin], daemon=True).start()
    return told


def polled(consumer):
    """The next records of a kafka-python consumer, if any.

    A join that completes between two of its polls is forgotten: the next poll joins anew, and if the member leads the
    group, that starts another rebalance. On a busy machine short polls never come to an end with it, so only a member
    that has joined polls shortly; it is to notice what it is told.
    """
    is_stable = consumer.group_metadata().state is MemberState.STABLE
    return consumer.poll(50 if is_stable else JOIN_POLL_MS)


def member_python(address, topic, group):
    """As `member`, by kafka-python."""

    class Rebalanced(kafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            print("partitions", flush=True)

        def on_partitions_assigned(self, assigned):
            print("partitions", *(partition.partition for partition in assigned), flush=True)

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([topic], listener=Rebalanced())
    told, last = told_by_lines(), {}
    while True:
        word = told.get_nowait() if not told.empty() else None
        if word == "leave":
            break
        if word == "commit":
            try:
                consumer.commit(last)
                print("committed", flush=True)
            except kafka.errors.KafkaError as refusal:
                print("refused", type(refusal).__name__, flush=True)
        for partition, messages in polled(consumer).items():
            for message in messages:
                print("value", message.value.decode(), flush=True)
            last = {partition: kafka.OffsetAndMetadata(messages[-1].offset + 1, "", -1)}
            try:
                consumer.commit(last)
            except kafka.errors.KafkaError:
                # The partition has another owner by now, who reads these records again.
                pass
    consumer.close()
    print("left", flush=True)


CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
KIP_848 = {"group.protocol": "consumer"}


def member(address, topic, group, protocol=CLASSIC):
    """Says what it is given and processes; ends on `leave`; on `commit` commits where it stands and says how that went."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **protocol,
        }
    )
    told, owned = told_by_lines(), set()

    # All partitions, or with the consumer protocol those that come and go.
    def assigned(_, partitions):
        owned.update(partition.partition for partition in partitions)
        print("partitions", *owned, flush=True)

    def revoked(_, partitions):
        owned.difference_update(partition.partition for partition in partitions)
        print("partitions", *owned, flush=True)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    last = None
    while True:
        word = told.get_nowait() if not told.empty() else None
        if word == "leave":
            break
        if word == "commit":
            try:
                consumer.commit(message=last, asynchronous=False)
                print("committed", flush=True)
            except KafkaException as refusal:
                print("refused", refusal.args[0].name(), flush=True)
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            print("value", message.value().decode(), flush=True)
            last = message
            try:
                consumer.commit(message=message, asynchronous=False)
            except KafkaException as refusal:
                # The partition has another owner by now, who reads this record again.
                assert refusal.args[0].code() != KafkaError._INVALID_ARG, refusal
    consumer.close()
    print("left", flush=True)


def leave_and_kill(address, client, tools=None):
    topic = create(address, "group-records", 6)
    group = Group(address, topic, client, tools)
    try:
        leaving, killed, _ = group.join(), group.join(), group.join()
        group.wait_for_shares(2, 2, 2)
        values = sent(address, topic, 0, 300)
        group.wait_for_values(values)
        assert max(group.processed.values()) == 1, "nobody joined or left, and a record was processed twice"
        leaving.tell("leave")
        values += sent(address, topic, 300, 300)
        group.wait_for("the leaving member to be gone", lambda: (leaving, ["left"]) in group.answers)
        leaving.partitions = None
        group.wait_for_shares(3, 3)
        killed.end()
        killed.partitions = None
        values += sent(address, topic, 600, 300)
        group.wait_for_shares(6)
        group.wait_for_values(values)
        assert set(group.processed) == set(values)
    finally:
        group.end()


def stale_member_is_fenced(address, client):
    topic = create(address, "group-fenced", 1)
    group = Group(address, topic, client)
    try:
        stale = group.join()
        group.wait_for_shares(1)
        group.wait_for_values(sent(address, topic, 0, 1))
        os.kill(stale.process.pid, signal.SIGSTOP)
        group.join()
        stale.partitions = None
        group.wait_for_shares(1)
        values = sent(address, topic, 1, 10)
        group.wait_for_values(values)
        stale.tell("commit")
        os.kill(stale.process.pid, signal.SIGCONT)
        answers = lambda: [words for member, words in group.answers if member is stale]
        (words,) = group.wait_for("the stale member's commit to be answered", answers)
        fenced = {"STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"}
        fenced |= {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST"}
        fenced |= {"CommitFailedError", "UnknownMemberIdError", "IllegalGenerationError", "RebalanceInProgressError"}
        assert words[0] == "refused" and words[1] in fenced, words
        # Where the group stands is what its live member committed.
        group.members[1].tell("commit")
        group.wait_for("the live member's commit", lambda: (group.members[1], ["committed"]) in group.answers)
    finally:
        group.end()


if __name__ == "__main__":
    checks.main(
        {
            "member-librdkafka": member,
            "member-librdkafka-kip-848": lambda *where: member(*where, protocol=KIP_848),
            "member-kafka-python": member_python,
            "leave-and-kill": leave_and_kill,
            "stale": stale_member_is_fenced,
        }
    )
