"""redis-py as a user would write it. Argument: HOST:PORT."""

import asyncio
import sys
import time

import redis
import redis.asyncio

PATIENCE_S = 60


def until(what, holds):
    """Waits until `holds()` answers something true, and answers that."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = holds()
        if value:
            return value
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def refused(error, text, call):
    try:
        call()
    except error as refusal:
        assert str(refusal) == text, refusal
    else:
        raise AssertionError(f"{text}: not refused")


def strings(client):
    assert client.set("py:key", "value") is True
    assert client.get("py:key") == "value"
    assert client.get("py:missing") is None
    assert client.set("py:key", "other", nx=True) is None
    assert client.set("py:key", "new", xx=True, get=True) == "value"
    assert client.append("py:key", "er") == 5
    assert client.getrange("py:key", 1, -2) == "ewe"
    assert client.setrange("py:key", 7, "!") == 8
    assert client.getdel("py:key") == "newer\x00\x00!"
    assert client.mset({"py:a": "1", "py:b": "2"}) is True
    assert client.mget("py:a", "py:none", "py:b") == ["1", None, "2"]
    assert client.msetnx({"py:b": "3", "py:c": "3"}) is False
    assert client.incr("py:a") == 2 and client.decrby("py:a", 44) == -42
    assert client.incrbyfloat("py:b", 0.5) == 2.5
    client.set("py:word", "word")
    refused(redis.ResponseError, "value is not an integer or out of range", lambda: client.incr("py:word"))
    client.set("py:ohm", "ohmytext"), client.set("py:my", "mynewtext")
    assert client.lcs("py:ohm", "py:my") == "mytext"


def binary(address):
    """Bytes that are no text go in and out as they are."""
    client = redis.Redis.from_url(f"redis://{address}/0")
    every = bytes(range(256))
    key = b"py:\x00\xff\r\n"
    client.set(key, every * 1000)
    assert client.get(key) == every * 1000 and client.strlen(key) == 256_000
    assert client.delete(key) == 1


def keys(client):
    client.flushdb()
    client.mset({f"py:{at}": at for at in range(1000)})
    assert client.dbsize() == 1000 and client.exists("py:1", "py:1", "py:none") == 2
    assert sorted(client.scan_iter("py:*", count=7)) == sorted(f"py:{at}" for at in range(1000))
    assert sorted(client.keys("py:99?")) == [f"py:99{at}" for at in range(10)]
    assert client.rename("py:1", "py:one") and client.type("py:one") == "string" and client.type("py:1") == "none"
    assert client.copy("py:one", "py:2") is False and client.copy("py:one", "py:2", replace=True) is True
    refused(redis.ResponseError, "no such key", lambda: client.rename("py:none", "py:other"))
    assert client.unlink("py:one", "py:none") == 1
    assert client.randomkey().startswith("py:")


def expiry(client):
    client.set("py:short", "lived", ex=100)
    assert 0 < client.ttl("py:short") <= 100 and 99_000 < client.pttl("py:short") <= 100_000
    assert client.expire("py:short", 50, gt=True) is False and client.expire("py:short", 200, gt=True) is True
    assert client.persist("py:short") is True and client.ttl("py:short") == -1 and client.ttl("py:none") == -2
    client.psetex("py:short", 30, "lived")
    until("a key to expire", lambda: client.get("py:short") is None)
    assert client.exists("py:short") == 0
    client.set("py:at", "x", exat=4_000_000_000)
    assert client.expiretime("py:at") == 4_000_000_000
    assert client.getex("py:at", persist=True) == "x" and client.expiretime("py:at") == -1


def bits(client):
    assert client.setbit("py:bits", 7, 1) == 0 and client.getbit("py:bits", 7) == 1
    client.set("py:bits", b"\x0f\xf0"), client.set("py:more", b"\xff")
    assert client.bitcount("py:bits") == 8 and client.bitpos("py:bits", 1) == 4
    assert client.bitop("AND", "py:both", "py:bits", "py:more") == 2
    assert client.bitfield("py:field").set("u8", 0, 255).incrby("u8", 0, 10).execute() == [0, 9]


def pipelines(client):
    pipe = client.pipeline(transaction=False)
    for at in range(1000):
        pipe.set(f"py:p{at}", at).get(f"py:p{at}")
    assert pipe.execute() == [answer for at in range(1000) for answer in (True, str(at))]
    client.set("py:word", "word")
    answers = client.pipeline(transaction=False).incr("py:word").get("py:word").execute(raise_on_error=False)
    assert isinstance(answers[0], redis.ResponseError) and answers[1] == "word", answers


def transactions(client):
    with client.pipeline() as pipe:
        assert pipe.set("py:x", 1).incr("py:x").get("py:x").execute() == [True, 2, "2"]
        pipe.watch("py:x")
        seen = int(pipe.get("py:x"))
        client.set("py:x", 100)
        pipe.multi()
        pipe.set("py:x", seen + 1)
        try:
            pipe.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("the transaction of an overtaken writer took effect")
    assert client.get("py:x") == "100"
    client.transaction(lambda pipe: (seen := int(pipe.get("py:x")), pipe.multi(), pipe.set("py:x", seen + 1)), "py:x")
    assert client.get("py:x") == "101"


def publish_and_subscribe(client):
    with client.pubsub(ignore_subscribe_messages=True) as subscriber:
        subscriber.subscribe("py:news")
        subscriber.psubscribe("py:*")
        until("both subscriptions", lambda: subscriber.get_message(timeout=1) is None and client.pubsub_numpat() == 1)
        assert client.pubsub_channels("py:*") == ["py:news"]
        assert client.publish("py:news", "hello") == 2
        heard = [until("a message", lambda: subscriber.get_message(timeout=1)) for _ in range(2)]
        assert [(it["type"], it["channel"], it["data"]) for it in heard] == [
            ("message", "py:news", "hello"),
            ("pmessage", "py:news", "hello"),
        ]
        subscriber.unsubscribe(), subscriber.punsubscribe()
        until("no subscription", lambda: subscriber.get_message(timeout=1) is None and client.pubsub_numpat() == 0)


def keyspace_events(client):
    before = client.config_get("notify-keyspace-events")["notify-keyspace-events"]
    client.config_set("notify-keyspace-events", "KEA")
    with client.pubsub(ignore_subscribe_messages=True) as subscriber:
        subscriber.psubscribe("__key*__:py:watched", "__keyevent@*__:expired")
        until("the subscription", lambda: subscriber.get_message(timeout=1) is None and client.pubsub_numpat() == 2)
        client.set("py:watched", 1, px=20)
        heard = []
        while len(heard) < 4:
            event = until("an event", lambda: subscriber.get_message(timeout=1))
            # Another key that has expired before is removed at any time.
            if "py:watched" in (event["data"], event["channel"].partition(":")[2]):
                heard.append(event)
        assert [(it["channel"], it["data"]) for it in heard[:2]] == [
            ("__keyspace@0__:py:watched", "set"),
            ("__keyspace@0__:py:watched", "expire"),
        ], heard
        assert {(it["channel"], it["data"]) for it in heard[2:]} == {
            ("__keyspace@0__:py:watched", "expired"),
            ("__keyevent@0__:expired", "py:watched"),
        }, heard
    client.config_set("notify-keyspace-events", before)


def locks(client):
    """redis-py's own lock releases by a script; taken and left to expire, it needs none."""
    taken = client.set("py:lock", "mine", nx=True, px=20)
    assert taken and until("the lock", lambda: client.set("py:lock", "theirs", nx=True, ex=10))


def connection(client):
    assert client.ping() is True and client.echo("hello") == "hello"
    client.client_setname("smoke")
    assert client.client_getname() == "smoke"
    assert any(it["name"] == "smoke" for it in client.client_list())
    assert "redis_version" in client.info() and client.config_get("appendonly")["appendonly"] in ("yes", "no")
    assert client.command_count() > 0 and "get" in client.command()
    seconds, micros = client.time()
    assert seconds > 1_700_000_000 and 0 <= micros < 1_000_000


async def asynchronous(address):
    client = redis.asyncio.Redis.from_url(f"redis://{address}/0", decode_responses=True)
    await client.set("py:async", 0)
    await asyncio.gather(*(client.incr("py:async") for _ in range(50)))
    assert await client.get("py:async") == "50"
    await client.aclose()


def main():
    address = sys.argv[1]
    for protocol in (2, 3):
        url = f"redis://{address}/0?protocol={protocol}"
        client = redis.Redis.from_url(url, decode_responses=True, single_connection_client=True)
        client.flushall()
        for case in (strings, keys, expiry, bits, pipelines, transactions, publish_and_subscribe, keyspace_events, locks,
                     connection):
            case(client)
        client.close()
    binary(address)
    asyncio.run(asynchronous(address))
    print("ok redis-py")


main()
