"""paho-mqtt over a WebSocket with TLS and a client certificate. Arguments: HOST, port, authority, certificate, key, message."""

import sys
import threading

import paho.mqtt.client as mqtt

host, port, authority, certificate, key, message = sys.argv[1:]
connected, reasons = threading.Event(), []


def on_connect(_client, _data, _flags, reason, _properties):
    reasons.append(reason)
    connected.set()


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, transport="websockets")
client.ws_set_options(path="/mqtt")
client.tls_set(authority, certificate, key)
client.on_connect = on_connect
client.connect(host, int(port))
client.loop_start()
assert connected.wait(60)
if reasons[0].is_failure:
    sys.exit(f"refused {reasons[0]}")
client.publish("telemetry", message, qos=1).wait_for_publish(60)
client.disconnect()
client.loop_stop()
print("ok")
