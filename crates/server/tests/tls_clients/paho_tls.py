"""paho-mqtt over TLS: sends one message at QoS 1. Arguments: `tcp` or `websockets`, HOST, port, authority, message, and either
user and password or the files of a certificate and its key."""

import sys
import threading

import paho.mqtt.client as mqtt

transport, host, port, authority, message, first, second = sys.argv[1:]
connected, reasons = threading.Event(), []


def on_connect(_client, _data, _flags, reason, _properties):
    reasons.append(reason)
    connected.set()


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, transport=transport)
client.ws_set_options(path="/mqtt")
if "@" in first:
    client.tls_set(authority)
    client.username_pw_set(first, second)
else:
    client.tls_set(authority, first, second)
client.on_connect = on_connect
try:
    client.connect(host, int(port))
except OSError as error:
    sys.exit(f"refused: {error}")
client.loop_start()
assert connected.wait(60)
if reasons[0].is_failure:
    sys.exit(f"refused: {reasons[0]}")
client.publish("telemetry", message, qos=1).wait_for_publish(60)
client.disconnect()
client.loop_stop()
print("ok")
