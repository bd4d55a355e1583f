"""paho-mqtt: talks to itself in the private space at all three qualities. Arguments: address, version (4 or 5), count,
tcp or websockets."""

import queue
import sys
import threading

import paho.mqtt.client as mqtt

address, version, count, transport = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
host, port = address.rsplit(":", 1)


def client(name):
    one = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, client_id=f"{name}-{version}", protocol=version, transport=transport
    )
    one.username_pw_set("gateway@default", "pw")
    if transport == "websockets":
        one.ws_set_options(path="/mqtt")
    one.up, one.got, one.subscribed = threading.Event(), queue.Queue(), threading.Event()
    one.on_connect = lambda _c, _d, _f, reason, _p: (reason.is_failure and sys.exit(reason)) or one.up.set()
    one.on_message = lambda _c, _d, message: one.got.put(message)
    one.on_subscribe = lambda *_: one.subscribed.set()
    one.connect(host, int(port))
    one.loop_start()
    assert one.up.wait(60)
    return one


reader, writer = client("paho-reader"), client("paho-writer")
reader.subscribe("paho/+/data", qos=2)
assert reader.subscribed.wait(60)
for qos in (1, 2):
    sent = [writer.publish(f"paho/{at % 3}/data", f"{qos}-{at}", qos=qos) for at in range(count)]
    for message in sent:
        message.wait_for_publish(60)
        assert message.is_published()
    got = [reader.got.get(timeout=60) for _ in range(count)]
    assert [message.payload.decode() for message in got] == [f"{qos}-{at}" for at in range(count)]
    assert {message.qos for message in got} == {qos}
writer.publish("paho/x/data", "last", qos=0)
assert reader.got.get(timeout=60).payload == b"last"
for one in (reader, writer):
    one.disconnect()
    one.loop_stop()
print("ok paho")
