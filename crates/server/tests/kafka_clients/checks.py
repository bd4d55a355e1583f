"""What the scripts of both client libraries share: the records they send and what they expect to read back."""

import sys
import time
import uuid

RECORDS = 10_000
KEYS = 100
PARTITIONS = 4
PATIENCE_S = 60


def new_topic_name(what):
    """Another name in every run, so that a broker with older topics does as well."""
    return f"{what}-{uuid.uuid4().hex[:8]}"


def records(count=RECORDS):
    """Key and value of each record, in the order in which they are sent."""
    return [(f"key-{at % KEYS}".encode(), f"value-{at}".encode()) for at in range(count)]


def check_read_back(read, count=RECORDS):
    """`read` is (partition, offset, key, value) as they came: each record once, in order per key, offsets ascending."""
    sent = records(count)
    values = sorted(value for _, _, _, value in read)
    assert values == sorted(value for _, value in sent), f"{len(read)} records read, {count} sent, or others than sent"
    for key in {key for key, _ in sent}:
        expected = [value for sent_key, value in sent if sent_key == key]
        assert [value for _, _, read_key, value in read if read_key == key] == expected, f"order of {key}"
        assert len({partition for partition, _, read_key, _ in read if read_key == key}) == 1, f"{key}: two partitions"
    for partition in {partition for partition, *_ in read}:
        offsets = [offset for of, offset, *_ in read if of == partition]
        assert offsets == sorted(set(offsets)), f"partition {partition}: offsets do not ascend"


def until(what, holds):
    """Waits until `holds()` answers something true, and answers that."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = holds()
        if value:
            return value
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def main(cases):
    """`SCRIPT ADDRESS CASE [ARGUMENT...]`"""
    address, case, *arguments = sys.argv[1:]
    cases[case](address, *arguments)
    print("ok", case)
