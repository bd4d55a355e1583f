"""A real server as a process, and a relay in front of it whose connections can be cut."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

# The server takes longer under other load; nothing is measured.
PATIENCE_S = 60
TARGET = os.environ.get("CARGO_TARGET_DIR", str(Path.home() / ".cache/millstream/target"))
BINARY = os.environ.get("MILLSTREAM_BIN", f"{TARGET}/debug/millstream")
LISTENERS = ("applications", "devices-http", "kafka", "devices-mqtt", "redis")
# The server names these after the plain ones.
TLS_LISTENERS = ("applications-tls", "devices-http-tls")


class Server:
    """`millstream serve` on ports of its own, with everything it keeps in a temporary directory."""

    def __init__(
        self,
        *arguments: str,
        configuration: str = "",
        tls: bool = False,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="millstream-python-")
        self.dir = Path(self._folder.name)
        (self.dir / "millstream.toml").write_text(configuration)
        self._arguments = list(arguments)
        if tls:
            self._run_command("tls", "self-signed", "--dir", "tls")
            self._arguments += ["--tls-certificate", "tls/server.crt", "--tls-key", "tls/server.key"]
            self._arguments += [f"--listen-{name}=127.0.0.1:0" for name in TLS_LISTENERS]
        self._names = LISTENERS + (TLS_LISTENERS if tls else ())
        self.addresses = {**dict.fromkeys(LISTENERS, "127.0.0.1:0"), **(addresses or {})}
        self._start()

    @property
    def url(self) -> str:
        return f"http://{self.addresses['applications']}"

    @property
    def devices_url(self) -> str:
        return f"http://{self.addresses['devices-http']}"

    @property
    def ca(self) -> str:
        return str(self.dir / "tls/ca.crt")

    def _start(self) -> None:
        listen = [f"--listen-{name}={self.addresses[name]}" for name in LISTENERS]
        command = [BINARY, "serve", "--data-dir", "data", "--set", "logging.level=warn", *listen, *self._arguments]
        self._process = subprocess.Popen(command, cwd=self.dir, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for _ in self._names:
            line = self._process.stdout.readline()
            word, name, address = line.split()
            assert word == "listening", line
            self.addresses[name] = address.rpartition("/")[2]

    def _run_command(self, *arguments: str) -> None:
        subprocess.run([BINARY, *arguments], cwd=self.dir, check=True, capture_output=True)

    def restart(self) -> None:
        """`kill -9`, and a start at the same addresses."""
        self.kill()
        self._start()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._end(signal.SIGTERM)
        self._folder.cleanup()

    def _end(self, sign: signal.Signals) -> None:
        self._process.send_signal(sign)
        self._process.wait(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Relay:
    """Passes connections on to an address until `cut` ends all that are open."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self._listener.getsockname())

    def cut(self) -> None:
        with self._lock:
            sockets, self._open = self._open, []
        for each in sockets:
            shut(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shut(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._to)
            with self._lock:
                self.connections += 1
                self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
    except OSError:
        pass
    shut(sink)
    source.close()
