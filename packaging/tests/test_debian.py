"""The Debian package in a Debian of its own: installed, used, upgraded, removed, purged."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path

from debian import base_system, newer
from packages import archive, debian_package, image, make, run, unpacked, version
from server import Server, until

CONFIGURATION = "etc/millstream.toml"
ENABLED = "etc/systemd/system/multi-user.target.wants/millstream.service"


def run_inside(root, *command):
    return run("chroot", root, *command, env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})


class Debian(unittest.TestCase):
    takes_long = True

    def test_lintian_finds_no_error_and_no_warning(self):
        if not shutil.which("lintian"):
            self.skipTest("lintian is not on this machine")
        found = run("lintian", "--allow-root", "--fail-on", "error,warning", debian_package())
        self.assertEqual([line for line in found.splitlines() if line.startswith(("E:", "W:"))], [])

    def test_the_same_binary_and_commit_give_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), "archive", "deb", "oci")
            for first, again in (
                (debian_package(), Path(folder) / debian_package().name),
                (archive(), Path(folder) / archive().name),
                (image() / "index.json", Path(folder) / "oci/index.json"),
            ):
                self.assertTrue(first.read_bytes() == again.read_bytes(), first.name)

    def test_shells_take_the_completions(self):
        with tempfile.TemporaryDirectory() as folder:
            run("dpkg-deb", "-x", debian_package(), folder)
            share = Path(folder) / "usr/share"
            for shell, script in (
                ("bash", share / "bash-completion/completions/millstream"),
                ("zsh", share / "zsh/vendor-completions/_millstream"),
                ("fish", share / "fish/vendor_completions.d/millstream.fish"),
            ):
                with self.subTest(shell):
                    if not shutil.which(shell):
                        self.skipTest(f"{shell} is not on this machine")
                    run(shell, "-n", script)

    def test_it_is_installed_used_upgraded_removed_and_purged(self):
        if os.getuid() != 0 or not shutil.which("debootstrap"):
            self.skipTest("needs root and debootstrap")
        with tempfile.TemporaryDirectory() as folder:
            self.life_of_the_package(Path(folder), base_system(folder))

    def test_the_archive_installs_for_a_user_of_its_own(self):
        if os.getuid() != 0 or not shutil.which("debootstrap"):
            self.skipTest("needs root and debootstrap")
        with tempfile.TemporaryDirectory() as folder:
            root = base_system(folder)
            shutil.copytree(unpacked(), root / "opt/unpacked")
            for _ in range(2):
                run_inside(root, "/opt/unpacked/install.sh", "--systemd")
            account = run_inside(root, "getent", "passwd", "millstream").split(":")
            mode = (root / CONFIGURATION).stat()
            self.assertEqual((mode.st_uid, mode.st_gid, mode.st_mode & 0o777), (0, int(account[3]), 0o640))
            self.assertEqual(run_inside(root, "millstream", "version").strip(), f"millstream {version()}")
            self.assertIn("/usr/local/bin/millstream serve", (root / "etc/systemd/system/millstream.service").read_text())
            command = ["chroot", "--userspec=millstream:millstream", root, "/usr/local/bin/millstream"]
            with Server(command, folder, ["--config", "/" + CONFIGURATION, "--data-dir", "/tmp/data"]) as server:
                server.register("probe")
                self.assertEqual(server.send("probe", {"temp": 21}), 202)
                server.stop()
            run_inside(root, "/opt/unpacked/install.sh", "--remove")
            left = run_inside(root, "find", "/etc", "/usr", "/var/lib", "-name", "*millstream*").split()
            self.assertEqual(left, ["/" + CONFIGURATION])

    def life_of_the_package(self, folder, root):
        def inside(*command):
            return run_inside(root, *command)

        def install(package):
            shutil.copy(package, root / "tmp/millstream.deb")
            inside("dpkg", "--install", "/tmp/millstream.deb")

        def serve():
            command = ["chroot", "--userspec=millstream:millstream", root, "/usr/bin/millstream"]
            return Server(command, folder, ["--config", "/" + CONFIGURATION])

        install(debian_package())
        account = inside("getent", "passwd", "millstream").split(":")
        mode = (root / CONFIGURATION).stat()
        self.assertEqual((mode.st_uid, mode.st_gid, mode.st_mode & 0o777), (0, int(account[3]), 0o640))
        self.assertTrue((root / ENABLED).is_symlink())
        self.assertEqual(inside("dpkg", "--verify", "millstream"), "")
        with serve() as server:
            server.register("probe")
            self.assertEqual(server.send("probe", {"temp": 21}), 202)
            until("the entity is there", lambda: server.entity("probe").get("temp") == 21)
            server.stop()
        self.assertTrue((root / "var/lib/millstream").stat().st_uid == int(account[2]))

        # Edited by its administrator, then a newer version.
        with open(root / CONFIGURATION, "a") as configuration:
            configuration.write("\n[logging]\nlevel = \"debug\"\n")
        edited = (root / CONFIGURATION).read_text()
        install(debian_package())
        install(newer(folder))
        self.assertIn("+newer", inside("dpkg-query", "--show", "millstream"))
        self.assertEqual((root / CONFIGURATION).read_text(), edited)
        self.assertEqual((root / CONFIGURATION).stat().st_gid, int(account[3]))
        with serve() as server:
            self.assertEqual(server.entity("probe").get("temp"), 21)
            self.assertEqual(server.send("probe", {"temp": 22}), 202)
            server.stop()
        self.assertIn("DEBUG", server.log.read_text())

        inside("dpkg", "--remove", "millstream")
        self.assertFalse((root / "usr/bin/millstream").exists())
        self.assertTrue((root / CONFIGURATION).exists() and any((root / "var/lib/millstream").iterdir()))
        install(debian_package())
        with serve() as server:
            self.assertEqual(server.entity("probe").get("temp"), 22)
            server.stop()

        inside("dpkg", "--purge", "millstream")
        (root / "tmp/millstream.deb").unlink()
        left = inside("find", "/etc", "/usr", "/var/lib", "-name", "*millstream*").split()
        self.assertEqual(left, [])
