"""The life of an installation on a bare Debian, as its owner lives it: install, log in to the console, register a device, send
over MQTTS, see it, ask a query, back up, lose everything, restore."""

import json
import os
import shutil
import tempfile
import time
import unittest
from pathlib import Path

from debian import base_system
from packages import debian_package, run
from server import Server, until

TOKEN = "a-token-of-the-owner-0123456789"
CONFIGURATION = f"""
data_dir = "/var/lib/millstream"

[listen]
applications_tls = "127.0.0.1:0"
devices_mqtt_tls = "127.0.0.1:0"

[tls]
certificate = "/etc/millstream-tls/server.crt"
key = "/etc/millstream-tls/server.key"

[[applications.tokens]]
name = "owner"
token = "{TOKEN}"
tenant = "*"
roles = ["reader", "writer", "admin"]
"""
QUERY = ("query", "--from", "earliest", "SELECT temp FROM STREAM() LIMIT 1")


class Scenario(unittest.TestCase):
    takes_long = True

    def setUp(self):
        if os.getuid() != 0 or not shutil.which("debootstrap"):
            self.skipTest("needs root and debootstrap")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.root = base_system(self.folder)

    def inside(self, *command):
        return run("chroot", self.root, *command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})

    def install(self):
        """Installs the package and configures TLS and a token."""
        shutil.copy(debian_package(), self.root / "tmp/millstream.deb")
        self.inside("dpkg", "--install", "/tmp/millstream.deb")
        self.authority = self.root / "etc/millstream-tls/ca.crt"
        if not self.authority.exists():
            self.inside("millstream", "tls", "self-signed", "--dir", "/etc/millstream-tls")
        self.inside("chown", "-R", "millstream", "/etc/millstream-tls")
        (self.root / "etc/millstream.toml").write_text(CONFIGURATION)

    def serve(self):
        command = ["chroot", "--userspec=millstream:millstream", self.root, "/usr/bin/millstream"]
        return Server(command, self.folder, ["--config", "/etc/millstream.toml"], token=TOKEN)

    def command(self, server, *words):
        """Runs a command of the installed program against the server, over TLS."""
        return self.inside("millstream", *words, "--server", self.url(server), "--ca", "/etc/millstream-tls/ca.crt", "--token", TOKEN)

    def at_the_console(self, step, server, *words):
        run("node", Path(__file__).parent / "console_steps.mjs", step, self.url(server), *words,
            env={**os.environ, "MILLSTREAM_TOKEN": TOKEN})

    def url(self, server):
        return f"https://{server.addresses['applications-tls']}"

    def publish(self, server, temperature):
        host, port = server.addresses["devices-mqtt-tls"].rsplit(":", 1)
        run("mosquitto_pub", "--cafile", self.authority, "-h", host, "-p", port, "-u", "probe@default", "-P", "hush-hush-42",
            "-q", "1", "-t", "telemetry", "-m", json.dumps({"temp": temperature}))

    def test_a_life(self):
        debian_package()
        begun = time.monotonic()
        self.install()
        with self.serve() as server:
            self.at_the_console("register", server, "probe", "hush-hush-42")
            self.publish(server, 21.5)
            until("the entity follows", lambda: server.entity("probe").get("temp") == 21.5)
            self.at_the_console("see", server, "probe", '{"temp": 21.5}')
            self.assertIn("21.5", self.command(server, *QUERY))
            self.command(server, "backup", "--to", "/srv/backups")
            server.stop()

        self.inside("dpkg", "--purge", "millstream")
        self.assertFalse((self.root / "var/lib/millstream").exists())
        self.install()
        self.inside("millstream", "restore", "--from", "/srv/backups", "--data-dir", "/var/lib/millstream")
        self.inside("chown", "-R", "millstream:millstream", "/var/lib/millstream")
        with self.serve() as server:
            self.assertEqual(server.entity("probe").get("temp"), 21.5)
            self.publish(server, 22.5)
            until("the entity goes on", lambda: server.entity("probe").get("temp") == 22.5)
            self.assertIn("21.5", self.command(server, *QUERY))
            server.stop()
        print(f"\nfrom the package to the restored server: {time.monotonic() - begun:.0f} s")
