"""A Debian to install into, and a newer version of the package."""

import tempfile
from pathlib import Path

from packages import TARGET, debian_package, run


def base_system(folder):
    """Returns the root directory, in `folder`, of a small Debian like this machine's, with systemd. It is fetched once."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release["VERSION_CODENAME"].strip('"')
    archive = Path(TARGET) / "packaging" / f"{codename}-systemd.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as fetched:
            run("debootstrap", "--variant=minbase", "--include=adduser,systemd-sysv", codename, f"{fetched}/root")
            run("tar", "--numeric-owner", "-cf", f"{archive}.new", "-C", f"{fetched}/root", ".")
        Path(f"{archive}.new").rename(archive)
    root = Path(folder) / "root"
    root.mkdir()
    run("tar", "--numeric-owner", "-xpf", archive, "-C", root)
    return root


def newer(folder):
    """Returns the same package with a higher version."""
    tree, package = Path(folder) / "tree", Path(folder) / "newer.deb"
    run("dpkg-deb", "--raw-extract", debian_package(), tree)
    control = tree / "DEBIAN/control"
    lines = control.read_text().splitlines(keepends=True)
    control.write_text("".join(line.replace("\n", "+newer\n") if line.startswith("Version:") else line for line in lines))
    run("dpkg-deb", "--build", "-Znone", "--root-owner-group", tree, package)
    return package
