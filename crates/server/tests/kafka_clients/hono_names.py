"""Topics of devices under Hono's names: a device over HTTP on one side, librdkafka on the other."""

import base64
import threading
import urllib.request

from confluent_kafka import Consumer, Producer

import checks


def ask(method, url, body=b"", **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=checks.PATIENCE_S) as answer:
        return answer.status, answer.headers, answer.read()


def consumer(address, group, *topics):
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 500}
    reader = Consumer({"bootstrap.servers": address, "group.id": group, **settings})
    reader.subscribe(list(topics))
    return reader


def read(reader, what):
    """The next record, whose position is committed."""
    message = checks.until(what, lambda: reader.poll(0.2))
    assert message.error() is None, message.error()
    reader.commit(message, asynchronous=False)
    return message


def both_ways(address, applications, devices):
    registered = f"{applications}/v1"
    ask("POST", f"{registered}/tenants/acme", b"{}", content_type="application/json")
    ask("POST", f"{registered}/devices/acme/lamp", b"{}", content_type="application/json")
    secret = b'[{"type": "hashed-password", "auth-id": "lamp", "secrets": [{"pwd-plain": "hush"}]}]'
    ask("PUT", f"{registered}/credentials/acme/lamp", secret, content_type="application/json")
    login = {"authorization": "Basic " + base64.b64encode(b"lamp@acme:hush").decode(), "content_type": "text/plain"}

    def send(body, **headers):
        return ask("POST", f"{devices}/telemetry", body, **login, qos_level="1", **headers)

    # By name and by pattern; each goes on where it has committed.
    for group, topic in [("named", "hono.telemetry.acme"), ("pattern", r"^hono\.telemetry\..*")]:
        for value in [b"1", b"2"]:
            if group == "named":
                send(value)
            reader = consumer(address, group, topic)
            message = read(reader, f"telemetry {value} for {topic}")
            assert (message.topic(), message.key(), message.value()) == ("hono.telemetry.acme", b"lamp", value)
            reader.close()

    answers = consumer(address, "answers", "hono.command_response.acme")
    taken = []
    waiting = threading.Thread(target=lambda: taken.append(send(b"3", hono_ttd="50")))
    waiting.start()
    reader = consumer(address, "named", "hono.telemetry.acme")
    message = read(reader, "the message of a device that listens")
    assert dict(message.headers())["ttd"] == b"50", message.headers()
    reader.close()
    headers = {"device_id": "lamp", "subject": "switch", "correlation-id": "c-1", "response-required": "true"}
    producer = Producer({"bootstrap.servers": address})
    producer.produce("hono.command.acme", b"on", "lamp", headers=headers)
    assert producer.flush(checks.PATIENCE_S) == 0
    waiting.join(checks.PATIENCE_S)
    status, told, body = taken[0]
    assert (status, told["hono-command"], body) == (200, "switch", b"on"), taken
    reply = f"{devices}/command/res/{told['hono-cmd-req-id']}"
    ask("POST", reply, b"it is on", **login, hono_cmd_status="200")
    message = read(answers, "the answer to the command")
    assert (message.topic(), message.value()) == ("hono.command_response.acme", b"it is on")
    assert dict(message.headers())["correlation-id"] == b"c-1", message.headers()
    answers.close()


if __name__ == "__main__":
    checks.main({"both-ways": both_ways})
