"""The Debian package on a Debian that systemd has booted, in a container: the service as confined as it is for users."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from debian import base_system, newer
from packages import debian_package, run
from server import until

ENTITY = "urn:ngsi-ld:Device:sim-0"


class Service(unittest.TestCase):
    takes_long = True

    def setUp(self):
        if os.getuid() != 0 or not shutil.which("debootstrap") or not shutil.which("systemd-nspawn"):
            self.skipTest("needs root, debootstrap and systemd-nspawn")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.root = base_system(self.folder)

    def boot(self):
        """Boots the root directory with a loopback interface of its own."""
        environment, flags = dict(os.environ), []
        if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
            environment["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "0"
        if not Path("/run/systemd/system").exists():
            flags = ["--register=no", "--keep-unit"]
        command = ["systemd-nspawn", "--quiet", f"--directory={self.root}", "--private-network",
                   f"--machine=millstream-{os.getpid()}", *flags]
        tried = subprocess.run([*command, "/bin/true"], env=environment, capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"systemd-nspawn does not work here: {tried.stderr.strip()}")
        with open(self.folder / "boot.log", "wb") as log:
            container = subprocess.Popen([*command, "--boot"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # Shuts the container down.
        self.addCleanup(container.wait)
        self.addCleanup(container.terminate)

        def first_process():
            self.assertIsNone(container.poll(), (self.folder / "boot.log").read_text(errors="replace"))
            children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
            return next((pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "systemd\n"), None)

        self.leader = until("the container has its systemd", first_process)
        until("the container is up", lambda: self.told("systemctl", "is-system-running") in ("running", "degraded"))

    def command(self, *words):
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        return ["nsenter", "--target", self.leader, "--all", "env", "-i", path, "DEBIAN_FRONTEND=noninteractive", *words]

    def inside(self, *words):
        return run(*self.command(*words))

    def told(self, *words):
        """Returns what a command prints, whether or not it succeeds."""
        return subprocess.run(self.command(*words), capture_output=True, text=True).stdout.strip()

    def install(self, package):
        shutil.copy(package, self.root / "var/tmp/millstream.deb")
        self.inside("dpkg", "--install", "/var/tmp/millstream.deb")

    def serving(self, but=None):
        """Returns the service's process, another one than `but`, once it answers."""

        def process():
            pid = self.told("systemctl", "show", "--property=MainPID", "--value", "millstream")
            asked = self.command("millstream", "entity", "list")
            is_new = pid not in ("0", "", but)
            return pid if is_new and subprocess.run(asked, capture_output=True).returncode == 0 else None

        return until("the service answers", process)

    def test_it_serves_confined_comes_back_is_upgraded_and_goes(self):
        self.boot()
        self.install(debian_package())
        first = self.serving()
        status = self.inside("cat", f"/proc/{first}/status")
        for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"):
            self.assertIn(line, status)
        account = self.inside("id", "--user", "millstream").strip()
        self.assertIn(f"Uid:\t{account}\t", status)

        for protocol in ("http", "mqtt"):
            self.inside("millstream", "sim", "--register", "--protocol", protocol, "--devices", "1", "--period", "100ms",
                        "--count", "10", "--qos", "1", "--template", '{"temp": 21}')

        def entity():
            return self.told("millstream", "entity", "show", ENTITY)

        until("the entity is there", lambda: "21" in entity())

        self.inside("systemctl", "kill", "--signal=KILL", "millstream")
        second = self.serving(but=first)
        self.assertIn("21", entity())
        self.install(newer(self.folder))
        third = self.serving(but=second)
        self.assertIn("21", entity())

        self.inside("dpkg", "--remove", "millstream")
        self.assertEqual(self.told("cat", f"/proc/{third}/comm"), "")
        self.assertTrue(any((self.root / "var/lib/millstream").iterdir()))
        self.install(debian_package())
        fourth = self.serving()
        self.inside("dpkg", "--purge", "millstream")
        self.assertEqual(self.told("cat", f"/proc/{fourth}/comm"), "")
        self.assertFalse((self.root / "var/lib/millstream").exists())
