"""The life of an installation on a bare Debian, as its owner lives it: install, log in to the console, register a device, send
over MQTTS, see it, ask a query, back up, lose everything, restore."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from debian import base_system
from packages import debian_package, run
from server import ROOT, Server, until

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
QUERY = "SELECT deviceId, payload.temp AS temp FROM telemetry SINCE '2020-01-01T00:00:00Z' LIMIT 1"


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
        self.inside("millstream", "tls", "self-signed", "--dir", "/etc/millstream-tls")
        self.inside("chown", "-R", "millstream", "/etc/millstream-tls")
        (self.root / "etc/millstream.toml").write_text(CONFIGURATION)
        self.authority = self.root / "etc/millstream-tls/ca.crt"

    def serve(self):
        command = ["chroot", "--userspec=millstream:millstream", self.root, "/usr/bin/millstream"]
        return Server(command, self.folder, ["--config", "/etc/millstream.toml"], token=TOKEN)

    def command(self, server, *words):
        """Runs a command of the installed program against the server, over TLS."""
        return self.inside("millstream", *words, "--server", f"https://{server.addresses['applications-tls']}",
                           "--ca", "/etc/millstream-tls/ca.crt", "--token", TOKEN)
