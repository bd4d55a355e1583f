"""The packages under test, made once by `scripts/dist`."""

import functools
import os
import platform
import subprocess
import tempfile
from pathlib import Path

from server import ROOT

TARGET = os.environ.get("CARGO_TARGET_DIR", str(Path.home() / ".cache/millstream/target"))
BINARY = os.environ.get("MILLSTREAM_DIST_BIN") or os.environ.get("MILLSTREAM_BIN") or f"{TARGET}/debug/millstream"
_folder = tempfile.TemporaryDirectory(prefix="millstream-dist-")


def version():
    return run(BINARY, "version").split()[1]


def run(*command, **options):
    """Returns what a command prints; fails with all of it if the command does."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def make(folder, *parts):
    # Weakly compressed: the binary of a test has many more bytes than that of a release.
    environment = {**os.environ, "MILLSTREAM_DIST_BIN": BINARY, "MILLSTREAM_DIST_DIR": str(folder), "MILLSTREAM_DIST_LEVEL": "1"}
    run(ROOT / "scripts/dist", *parts, env=environment)


@functools.cache
def archive():
    folder = Path(_folder.name) / "archive"
    make(folder, "archive")
    return folder / f"millstream-{version()}-{platform.machine()}-linux.tar.gz"


@functools.cache
def unpacked():
    """The folder of the unpacked archive."""
    run("tar", "-xzf", archive(), "-C", _folder.name)
    return Path(_folder.name) / archive().name.removesuffix(".tar.gz")


@functools.cache
def debian_package():
    folder = Path(_folder.name) / "deb"
    make(folder, "deb")
    (package,) = folder.glob("*.deb")
    return package


@functools.cache
def image():
    """The folder with the layout of the image."""
    folder = Path(_folder.name) / "image"
    make(folder, "oci")
    return folder / "oci"
