"""paho-mqtt: takes one command and answers it. Arguments: HOST:PORT, version (4 or 5), user, filter."""

import sys
import threading

import paho.mqtt.client as mqtt

address, version, user, subscription = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
host, port = address.rsplit(":", 1)
answered = threading.Event()


def on_message(client, _data, message):
    word, tenant, device, request, request_id, _name = message.topic.split("/")
    response = {"q": "s", "req": "res"}[request]
    topic = f"{word}/{tenant}/{device}/{response}/{request_id}/200/?content-type=text%2Fplain"
    client.publish(topic, b"did " + message.payload, qos=1)


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"paho-{user}", protocol=version)
client.username_pw_set(f"{user}@default", "pw")
client.on_connect = lambda client, *_: client.subscribe(subscription, qos=1)
client.on_message = on_message
client.on_publish = lambda *_: answered.set()
client.connect(host, int(port))
client.loop_start()
assert answered.wait(60)
client.disconnect()
client.loop_stop()
print("ok paho")
