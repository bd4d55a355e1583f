"""Qpid Proton: HOST PORT NAME SECRET COUNT SEED.

Takes COUNT events, accepts every other one in an order of its own, and waits for its end; with `all` it accepts all that there are.
"""

import random
import sys

from proton.handlers import MessagingHandler
from proton.reactor import Container

host, port, name, secret, count, seed = sys.argv[1:7]
QUIET_S = 2.0


def say(line):
    print(line, flush=True)


class Events(MessagingHandler):
    def __init__(self):
        super().__init__(auto_accept=False, prefetch=0 if count != "all" else 500)
        self.held = []
        self.quiet_for = 0

    def on_start(self, event):
        self.container = event.container
        url = f"amqp://{host}:{port}"
        self.connection = event.container.connect(url, user=name, password=secret, allow_insecure_mechs=True, reconnect=False)
        receiver = event.container.create_receiver(self.connection, "event/default")
        if count != "all":
            receiver.flow(int(count))
        else:
            self.task = self.container.schedule(QUIET_S, self)

    def on_timer_task(self, event):
        say("held")
        say("settled")
        self.connection.close()

    def on_message(self, event):
        say(bytes(event.message.body).decode())
        if count == "all":
            self.accept(event.delivery)
            self.task.cancel()
            self.task = self.container.schedule(QUIET_S, self)
            return
        self.held.append((event.delivery, bytes(event.message.body).decode()))
        if len(self.held) == int(count):
            say("held")
            random.seed(seed)
            random.shuffle(self.held)
            for delivery, body in self.held[: len(self.held) // 2]:
                self.accept(delivery)
                say(f"accepted {body}")
            # What is written here goes out before the next event is handled.
            self.container.schedule(0.05, Settled())


class Settled(MessagingHandler):
    def on_timer_task(self, event):
        say("settled")


Container(Events()).run()
