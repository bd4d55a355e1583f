"""The OCI image: its documents, its bytes, and its root file system as a place to run in."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from packages import image, run, version
from server import Server

USER_ID = 65532


def blob(entry):
    """Returns the bytes of a descriptor, whose digest and size must be theirs."""
    content = (image() / "blobs" / entry["digest"].replace(":", "/")).read_bytes()
    assert entry["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
    assert entry["size"] == len(content)
    return content


def documents():
    """Returns manifest, configuration and the bytes of the only layer."""
    (entry,) = json.loads((image() / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(entry))
    (layer,) = manifest["layers"]
    return manifest, json.loads(blob(manifest["config"])), gzip.decompress(blob(layer))


class Image(unittest.TestCase):
    def test_digests_and_sizes_are_those_of_the_bytes_and_no_blob_is_left_over(self):
        manifest, configuration, layer = documents()
        self.assertEqual(json.loads((image() / "oci-layout").read_text()), {"imageLayoutVersion": "1.0.0"})
        self.assertEqual(configuration["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(layer).hexdigest()])
        self.assertEqual(manifest["annotations"]["org.opencontainers.image.version"], version())
        self.assertEqual(len(list((image() / "blobs/sha256").iterdir())), 3)

    def test_it_runs_as_a_user_of_its_own_with_the_binary_and_the_authorities(self):
        _, configuration, layer = documents()
        with tempfile.NamedTemporaryFile() as file:
            file.write(layer)
            file.flush()
            with tarfile.open(file.name) as tar:
                entries = {entry.name: entry for entry in tar}
                authorities = tar.extractfile("etc/ssl/certs/ca-certificates.crt").read()
        self.assertEqual(configuration["config"]["User"], f"{USER_ID}:{USER_ID}")
        self.assertEqual(entries["usr/bin/millstream"].mode, 0o755)
        self.assertEqual((entries["var/lib/millstream"].uid, entries["var/lib/millstream"].mode), (USER_ID, 0o700))
        self.assertEqual(entries["etc/millstream.toml"].mode, 0o640)
        self.assertIn(b"BEGIN CERTIFICATE", authorities)

    def test_its_root_holds_all_that_the_program_needs(self):
        if os.getuid() != 0:
            self.skipTest("only root may change the root directory")
        _, configuration, layer = documents()
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "root"
            root.mkdir()
            (Path(folder) / "layer.tar").write_bytes(layer)
            run("tar", "--numeric-owner", "-xpf", f"{folder}/layer.tar", "-C", root)
            command = ["chroot", f"--userspec={configuration['config']['User']}", root]
            command += configuration["config"]["Entrypoint"]
            self.assertEqual(run(*command, "version").strip(), f"millstream {version()}")
            with Server(command, folder, configuration["config"]["Cmd"][1:]) as server:
                server.register("probe")
                self.assertEqual(server.send("probe", {"temp": 21}), 202)
                program, *check = configuration["config"]["Healthcheck"]["Test"][1:]
                self.assertEqual(program, configuration["config"]["Entrypoint"][0])
                environment = {**os.environ, "MILLSTREAM_SERVER": server.applications}
                self.assertEqual(run(*command, *check, env=environment), "ready\n")
                server.stop()
                self.assertEqual(subprocess.run([*command, *check], env=environment, capture_output=True).returncode, 2)


class ForeignReader(unittest.TestCase):
    takes_long = True

    def test_skopeo_reads_it(self):
        if not shutil.which("skopeo"):
            self.skipTest("skopeo is not on this machine")
        told = json.loads(run("skopeo", "inspect", f"oci:{image()}:{version()}"))
        self.assertEqual((told["Os"], len(told["Layers"])), ("linux", 1))
        with tempfile.TemporaryDirectory() as folder:
            # Reads every blob, and so every digest.
            run("skopeo", "--insecure-policy", "copy", f"oci:{image()}:{version()}", f"dir:{folder}/copy")
