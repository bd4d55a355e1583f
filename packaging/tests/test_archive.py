"""The archive: install.sh into a prefix, the service's file, removal."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from packages import archive, run, unpacked, version
from server import Server, until


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


class Archive(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def install(self, *arguments, **options):
        return run(unpacked() / "install.sh", *arguments, **options)

    def test_what_install_puts_below_a_prefix_runs_and_goes_away_again(self):
        prefix = self.folder / "prefix"
        self.install("--prefix", prefix)
        binary = prefix / "bin/millstream"
        self.assertEqual(run(binary, "version").strip(), f"millstream {version()}")
        for page in ("millstream.1", "millstream-serve.1", "millstream-topic-append.1"):
            self.assertTrue((prefix / "share/man/man1" / page).is_file(), page)
        with Server([binary], self.folder, ["--data-dir", self.folder / "data"]) as server:
            server.register("probe")
            self.assertEqual(server.send("probe", {"temp": 21}), 202)
            until("the entity is there", lambda: server.entity("probe").get("temp") == 21)
            # While the program runs its file can be replaced.
            self.install("--prefix", prefix)
            server.stop()
        self.install("--prefix", prefix, "--remove")
        self.assertEqual(files(prefix), [])
        self.assertTrue((self.folder / "data").is_dir())

    def test_the_service_runs_the_binary_of_the_prefix_and_keeps_a_configuration_that_is_there(self):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DESTDIR": str(self.folder)}
        self.install("--prefix", "/opt/millstream", "--systemd", env=environment)
        unit = (self.folder / "etc/systemd/system/millstream.service").read_text()
        self.assertIn("ExecStart=/opt/millstream/bin/millstream serve --config /etc/millstream.toml", unit)
        configuration = self.folder / "etc/millstream.toml"
        self.assertEqual(configuration.stat().st_mode & 0o777, 0o640)
        configuration.write_text("# changed\n")
        self.install("--prefix", "/opt/millstream", "--systemd", env=environment)
        self.assertEqual(configuration.read_text(), "# changed\n")
        self.install("--prefix", "/opt/millstream", "--remove", env=environment)
        self.assertEqual(files(self.folder), ["etc/millstream.toml"])

    def test_wrong_options_are_named(self):
        for arguments, part in (
            (["--prefix", "usr"], "prefix 'usr' is not an absolute path"),
            (["--prefix"], "usage:"),
            (["--sytemd"], "'--sytemd' is not an option"),
        ):
            refused = subprocess.run([unpacked() / "install.sh", *arguments], capture_output=True, text=True)
            self.assertEqual(refused.returncode, 2, arguments)
            self.assertIn(part, refused.stderr)

    def test_the_shipped_configuration_is_valid_and_has_the_data_where_the_service_may_write(self):
        shown = run(unpacked() / "bin/millstream", "config", "show", "--config", unpacked() / "packaging/millstream.toml")
        line = next(line for line in shown.splitlines() if line.startswith("data_dir"))
        self.assertIn('"/var/lib/millstream"', line)
        self.assertNotIn("# default", line)
        unit = (unpacked() / "packaging/millstream.service").read_text()
        self.assertIn("StateDirectory=millstream\n", unit)

    def test_checksums_are_those_of_the_files(self):
        checked = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=archive().parent)
        self.assertEqual(checked.strip(), f"{archive().name}: OK")

    def test_systemd_takes_the_service_and_finds_it_confined(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not on this machine")
        self.install("--prefix", self.folder / "prefix")
        unit = self.folder / "millstream.service"
        text = (unpacked() / "packaging/millstream.service").read_text()
        unit.write_text(text.replace("/usr/bin/", f"{self.folder}/prefix/bin/"))
        # Of our file alone: man pages and other units of this machine may be missing.
        verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
        ours = [line for line in verified.stderr.splitlines() if "millstream" in line]
        self.assertEqual(ours, [])
        # Exits with an error above this exposure, of 100.
        run("systemd-analyze", "security", "--offline=yes", "--threshold=20", unit)
