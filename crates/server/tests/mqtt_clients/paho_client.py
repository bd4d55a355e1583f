"""paho-mqtt: sends messages at both qualities and hears of an error. Arguments: HOST:PORT, version (4 or 5), count."""

import json
import sys
import threading

import paho.mqtt.client as mqtt

address, version, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
host, port = address.rsplit(":", 1)
connected, subscribed, told = threading.Event(), threading.Event(), []
heard = threading.Event()


def on_connect(_client, _data, _flags, reason, _properties):
    assert not reason.is_failure, reason
    connected.set()


def on_message(_client, _data, message):
    told.append((message.topic, json.loads(message.payload)))
    heard.set()


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="paho", protocol=version)
client.username_pw_set("gateway@default", "pw")
client.on_connect, client.on_message = on_connect, on_message
client.on_subscribe = lambda *_: subscribed.set()
client.connect(host, int(port))
client.loop_start()
assert connected.wait(60)
client.subscribe("error//+/#", qos=0)
assert subscribed.wait(60)
sent = [client.publish("telemetry" if at % 2 else "t//behind", f"paho-{version}-{at}", qos=1) for at in range(count)]
sent += [client.publish("event/?content-type=text%2Fplain", f"paho-{version}-event", qos=1)]
for message in sent:
    message.wait_for_publish(60)
    assert message.is_published()
client.publish("telemetry//stranger/?correlation-id=c1", "x", qos=1).wait_for_publish(60)
assert heard.wait(60)
topic, error = told[0]
assert topic == "error//stranger/telemetry/c1/403", topic
assert error["code"] == 403 and error["correlation-id"] == "c1", error
client.disconnect()
client.loop_stop()

refused = threading.Event()
reasons = []


def on_refused(_client, _data, _flags, reason, _properties):
    reasons.append(reason)
    refused.set()


stranger = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="stranger", protocol=version)
stranger.username_pw_set("gateway@default", "wrong")
stranger.on_connect = on_refused
stranger.connect(host, int(port))
stranger.loop_start()
assert refused.wait(60)
assert str(reasons[0]) == "Bad user name or password", reasons
stranger.loop_stop()
print("ok paho")
