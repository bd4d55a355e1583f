"""paho-mqtt over TLS until its input ends: a connection that stays, and new ones all the time. Arguments: HOST, port, authority.
Says `kept` or `new` for each confirmed message, `lost` or `failed` with the reason, and `ended`."""

import sys
import threading

import paho.mqtt.client as mqtt

host, port, authority = sys.argv[1:]
stop, output = threading.Event(), threading.Lock()


def say(*words):
    with output:
        print(*words, flush=True)


def connect():
    connected = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.tls_set(authority)
    client.username_pw_set("thermometer@default", "pw")
    client.on_connect = lambda *_: connected.set()
    client.connect(host, int(port))
    client.loop_start()
    if not connected.wait(60):
        raise TimeoutError("no CONNACK")
    return client


def send(client, message):
    sent = client.publish("telemetry", message, qos=1)
    sent.wait_for_publish(60)
    if not sent.is_published():
        raise TimeoutError("no PUBACK")


def close(client):
    client.on_disconnect = None
    client.disconnect()
    client.loop_stop()


def stay():
    client = connect()
    client.on_disconnect = lambda _client, _data, _flags, reason, _properties: say("lost", reason)
    while not stop.wait(0.01):
        send(client, "of a connection that stays")
        say("kept")
    close(client)


def come_and_go():
    while not stop.is_set():
        client = connect()
        send(client, "of a new connection")
        close(client)
        say("new")


def watched(run):
    try:
        run()
    except Exception as error:
        say("failed", error)


threads = [threading.Thread(target=watched, args=[run]) for run in (stay, come_and_go)]
for thread in threads:
    thread.start()
sys.stdin.read()
stop.set()
for thread in threads:
    thread.join()
say("ended")
