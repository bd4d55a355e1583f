"""Qpid Proton: HOST PORT NAME SECRET."""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

host, port, name, secret = sys.argv[1:5]
REPLY = "command_response/default/tour"


def say(line):
    print(line, flush=True)


class Tour(MessagingHandler):
    def __init__(self):
        super().__init__(auto_accept=True)
        self.open = 0
        self.left = 2

    def on_start(self, event):
        url = f"amqp://{host}:{port}"
        self.connection = event.container.connect(url, user=name, password=secret, allow_insecure_mechs=True, reconnect=False)
        for address in ("telemetry/default", "event/default", REPLY):
            event.container.create_receiver(self.connection, address)
        self.sender = event.container.create_sender(self.connection, None)

    def on_link_opened(self, event):
        self.open += 1
        if self.open == 4:
            say("ready")

    def on_message(self, event):
        message = event.message
        kind, device = event.receiver.source.address.split("/")[0], message.properties["device_id"]
        body = bytes(message.body).decode()
        if kind != "command_response":
            say(f"{kind} {device} {body}")
        if kind == "telemetry" and body == "go":
            command = Message(address="command/default/d", subject="on", body=b"input", inferred=True)
            command.correlation_id, command.reply_to = "c-1", REPLY
            self.sender.send(command)
        elif kind == "command_response":
            say(f"{kind} {device} {body} {int(message.properties['status'])} {message.correlation_id}")
            self.seen()

    def seen(self):
        # The outcome and the response come in any order.
        self.left -= 1
        if self.left == 0:
            self.connection.close()

    def on_accepted(self, event):
        say("outcome accepted")
        self.seen()

    def on_rejected(self, event):
        say(f"outcome rejected {event.delivery.remote.condition}")

    def on_released(self, event):
        say("outcome released")


Container(Tour()).run()
