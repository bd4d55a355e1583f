"""A real server of the binary under test on free ports of loopback, and load for it."""

import base64
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTENERS = ("applications", "devices-http", "devices-mqtt", "kafka", "redis")
WAIT_S = 60


def until(what, condition):
    """Returns the first true value of `condition`; fails after a minute."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {WAIT_S} s: {what}")


def request(method, url, body=None, headers=None):
    """Returns (status, text); status 0 if nobody answers."""
    data = json.dumps(body).encode() if body is not None else None
    all_headers = {"Content-Type": "application/json"} if data else {}
    call = urllib.request.Request(url, data, {**all_headers, **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(call, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()
    except OSError:
        return 0, ""


class Server:
    """`command` is what comes before `serve`: the binary, or chroot with one."""

    def __init__(self, command, folder, arguments=(), environment=None, token=None):
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        flags = [word for name in LISTENERS for word in (f"--listen-{name}", "127.0.0.1:0")]
        self.log = Path(folder) / "server.log"
        with open(self.log, "ab") as log:
            start = log.tell()
            self.process = subprocess.Popen(
                [*command, "serve", *flags, *arguments],
                stdout=log, stderr=log, cwd=folder, env={**os.environ, **(environment or {})})

        def addresses():
            text = self.log.read_bytes()[start:].decode()
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended:\n{text}")
            found = dict(re.findall(r"^listening (\S+) (?:\w+://)?(\S+)$", text, re.MULTILINE))
            return found if set(LISTENERS) <= set(found) else None

        self.addresses = until("the server listens", addresses)
        self.applications = "http://" + self.addresses["applications"]
        self.devices = "http://" + self.addresses["devices-http"]

    def stop(self):
        self.process.terminate()
        assert self.process.wait(WAIT_S) == 0, self.log.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(WAIT_S)

    def call(self, method, path, body=None):
        """Calls the applications' listener; returns (status, text)."""
        return request(method, self.applications + path, body, self.headers)

    def register(self, device):
        """Registers a device of the default tenant with the password `hush`."""
        status, text = self.call("POST", f"/v1/devices/default/{device}", {})
        assert status in (201, 409), text
        secret = [{"type": "hashed-password", "auth-id": device, "secrets": [{"pwd-plain": "hush"}]}]
        status, text = self.call("PUT", f"/v1/credentials/default/{device}", secret)
        assert status == 204, text

    def send(self, device, body):
        """Returns the status of a telemetry message."""
        login = base64.b64encode(f"{device}@default:hush".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "qos-level": "1"}
        return request("POST", f"{self.devices}/telemetry", body, headers)[0]

    def entity(self, device):
        """Returns the attributes of the entity that follows a device; nothing if there is none."""
        status, text = self.call("GET", f"/v2/entities/urn:ngsi-ld:Device:{device}?options=keyValues")
        return json.loads(text) if status == 200 else {}
