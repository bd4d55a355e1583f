"""librdkafka asks the provider for its tokens and logs in by OAUTHBEARER. Arguments: broker, token endpoint."""
import sys

from confluent_kafka import Consumer, KafkaException, Producer

broker, endpoint = sys.argv[1:]


def login(client):
    return {
        "bootstrap.servers": broker,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": client,
        "sasl.oauthbearer.client.secret": f"{client}-secret",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.scope": "millstream",
    }


producer = Producer(login("acme"))
outcomes = []
producer.produce("orders", b"a bolt", partition=0, on_delivery=lambda error, _: outcomes.append(error))
assert producer.flush(60) == 0 and outcomes == [None], outcomes

consumer = Consumer({**login("reader"), "group.id": "readers", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
message = consumer.poll(60)
assert message is not None and message.error() is None and message.value() == b"a bolt", message
consumer.close()

# Its token is right, and it has no role here.
stranger = Producer({**login("stranger"), "log_level": 0})
try:
    stranger.list_topics(timeout=5)
except KafkaException:
    print("ok")
else:
    sys.exit("a stranger was let in")
