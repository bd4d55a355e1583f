"""Dashboard and alert rules: every expression finds data on a server under load."""

import json
import math
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.parse
from pathlib import Path

from packages import BINARY, run, version
from server import ROOT, Server, request, until

COMPOSE = ROOT / "packaging/compose"
# Gauges that Hono calls so, by which its dashboards find them.
NAMES_OF_HONO = {"hono_tenants_total"}
TOKENS = {"MILLSTREAM_TOKEN": "0123456789-operator", "MILLSTREAM_METRICS_TOKEN": "0123456789-metrics"}


def dashboard_expressions():
    dashboard = json.loads((COMPOSE / "grafana/dashboards/millstream.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def alert_expressions():
    """Returns the left sides of the comparisons with a number that alerts are."""
    rules = re.findall(r"^ +expr: (.+)$", (COMPOSE / "alerts.yml").read_text(), re.MULTILINE)
    compared = [re.fullmatch(r"(.+) [<>] [0-9.e]+", rule) for rule in rules]
    assert all(compared), rules
    return [match[1] for match in compared]


def naming_faults(text):
    """Returns the names that break Prometheus' rules, with the rule."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    faults = [f"{name}: no help" for name in kinds if name not in helps]
    for name, kind in kinds.items():
        if (kind == "counter") != name.endswith("_total") and name not in NAMES_OF_HONO:
            faults.append(f"{name}: a {kind}")
        if kind != "histogram" and (name.endswith(("_count", "_sum", "_bucket")) or re.search(rf"^{name}{{.*\ble=", text, re.MULTILINE)):
            faults.append(f"{name}: looks like a histogram")
        if re.search(rf"^{name}{{.*\bquantile=", text, re.MULTILINE):
            faults.append(f"{name}: looks like a summary")
        if re.search(r"_(ms|us|ns|kb|mb|kib|mib|milliseconds|minutes|hours)(_total)?$", name):
            faults.append(f"{name}: not in base units")
    return faults


def environment():
    """The server's environment of compose.yaml, with tokens filled in."""
    text = (COMPOSE / "compose.yaml").read_text()
    found = dict(re.findall(r'^ +(MILLSTREAM__\w+): "(.*)"$', text, re.MULTILINE))
    folded = re.findall(r"^ +(MILLSTREAM__\w+): >-\n((?: {8}.*\n)+)", text, re.MULTILINE)
    found.update((key, " ".join(value.split())) for key, value in folded)
    assert len(found) == text.count("MILLSTREAM__"), found
    return {key: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda name: TOKENS[name[1]], value) for key, value in found.items()}


def serve(folder):
    token = TOKENS["MILLSTREAM_TOKEN"]
    return Server([BINARY], folder, ["--data-dir", f"{folder}/data"], environment(), token)


def load(server, seconds):
    """Devices over HTTP and MQTT, an application that changes an entity, notifications of all changes, a job and a bucket."""
    server.register("probe")
    job = {
        "version": 1, "kind": "Job", "name": "copies",
        "sources": {"in": {"type": "stream", "config": {"topic": "telemetry"}}},
        "sinks": {"out": {"type": "blackhole", "inputs": ["in"]}},
    }
    status, text = server.call("POST", "/api/jobs", job)
    assert status == 201, text
    status, text = server.call("PUT", "/buckets/shelf", {})
    assert status in (200, 201), text
    status, text = server.call("PUT", "/kv/shelf/key", "value")
    assert status in (200, 201, 204), text
    # The first receiver refuses what it is sent; nobody listens at the second, so that its notifications wait.
    for receiver in (f"{server.devices}/nobody", "http://127.0.0.1:1/"):
        subscription = {
            "subject": {"entities": [{"idPattern": ".*"}]},
            "notification": {"http": {"url": receiver}},
        }
        status, text = server.call("POST", "/v2/subscriptions", subscription)
        assert status == 201, text
    sims = [
        subprocess.Popen(
            [BINARY, "sim", "--register", "--registry-url", server.applications,
             "--registry-token", TOKENS["MILLSTREAM_TOKEN"], "--protocol", protocol, "--devices-url", url,
             "--device-prefix", f"{protocol}-", "--devices", "3", "--period", "200ms", "--duration", f"{seconds}s"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for protocol, url in (("http", server.devices), ("mqtt", "mqtt://" + server.addresses["devices-mqtt"]))
    ]
    count = 0
    while any(sim.poll() is None for sim in sims):
        count += 1
        assert server.send("probe", {"temp": count}) == 202
        room = {"id": "room", "type": "Room", "count": {"value": count}}
        status, text = server.call("POST", "/v2/entities?options=upsert", room)
        assert status in (201, 204), text
        time.sleep(0.2)
    for sim in sims:
        output = sim.communicate()[0]
        assert sim.returncode == 0, output.decode()
        assert re.search(rb"^1 s: \d+ sent, \d+ acknowledged, 0 failed, \d+ per second$", output, re.MULTILINE), output


class Metrics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_every_metric_that_a_panel_or_an_alert_names_is_there(self):
        expressions = dashboard_expressions() + alert_expressions()
        named = {name for text in expressions for name in re.findall(r"\b(?:millstream|hono|connect|process)_\w+", text)}
        self.assertGreater(len(named), 25)
        self.assertIn("millstream_notifications_waiting", named)
        with serve(self.folder) as server:
            load(server, 1)
            status, text = server.call("GET", "/metrics")
            self.assertEqual(status, 200, text)
            there = set(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))
            self.assertEqual(named - there, set())
            self.assertEqual(naming_faults(text), [])
            server.stop()

    def test_the_process_shows_itself_under_the_names_of_prometheus(self):
        began = time.time()
        with serve(self.folder) as server:
            text = server.call("GET", "/metrics")[1]
            values = {name: float(value) for name, value in re.findall(r"^(process_\w+) (\S+)$", text, re.MULTILINE)}
            proc = Path(f"/proc/{server.process.pid}")
            self.assertLess(abs(values["process_start_time_seconds"] - began), 60)
            self.assertGreater(values["process_cpu_seconds_total"], 0)
            self.assertGreater(values["process_virtual_memory_bytes"], values["process_resident_memory_bytes"])
            resident_kib = int(re.search(r"VmRSS:\s+(\d+)", (proc / "status").read_text())[1])
            self.assertLess(abs(values["process_resident_memory_bytes"] / 1024 / resident_kib - 1), 0.5)
            self.assertLess(values["process_open_fds"], values["process_max_fds"])
            self.assertLess(abs(values["process_open_fds"] - len(list((proc / "fd").iterdir()))), 10)
            self.assertRegex(text, r'(?m)^millstream_build_info{.*version="' + re.escape(version()) + '".*} 1$')
            server.stop()

    def test_the_metrics_token_of_the_compose_file_reads_metrics_and_changes_nothing(self):
        bearer = {"Authorization": f"Bearer {TOKENS['MILLSTREAM_METRICS_TOKEN']}"}
        with serve(self.folder) as server:
            self.assertEqual(request("GET", f"{server.applications}/metrics", headers=bearer)[0], 200)
            self.assertEqual(request("GET", f"{server.applications}/metrics")[0], 401)
            refused = request("POST", f"{server.applications}/v1/devices/default/x", {}, bearer)
            self.assertEqual(refused[0], 403, refused)
            server.stop()

    def test_the_files_that_the_compose_file_mounts_are_there(self):
        text = (COMPOSE / "compose.yaml").read_text()
        mounted = re.findall(r"^ +- (\./[^:]+):", text, re.MULTILINE)
        self.assertEqual(len(mounted), 4)
        for path in mounted:
            self.assertTrue((COMPOSE / path).exists(), path)
        self.assertIn('test: ["CMD", "/usr/bin/millstream", "health"]', text)
        known = re.search(r"MILLSTREAM_VERSION:-([^}]+)\}", text)[1]
        self.assertEqual(version(), known)


class Prometheus(unittest.TestCase):
    takes_long = True

    def test_every_expression_returns_data_under_load_and_a_server_that_is_gone_is_noticed(self):
        if not shutil.which("prometheus"):
            self.skipTest("prometheus is not on this machine")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with serve(folder.name) as server:
            self.start(Path(folder.name), server)
            load(server, 15)
            expressions = dashboard_expressions() + alert_expressions()
            self.assertGreater(len(expressions), 30)
            for expression in expressions:
                with self.subTest(expression):
                    filled = expression.replace("$instance", ".*").replace("$__rate_interval", "1m")
                    until(f"data of {filled}", lambda filled=filled: self.has_data(filled))
            checked = subprocess.run(
                ["promtool", "check", "metrics"], input=server.call("GET", "/metrics")[1], text=True, capture_output=True)
            complaints = [line for line in checked.stderr.splitlines() if line and line.split()[0] not in NAMES_OF_HONO]
            self.assertEqual(complaints, [])
            alerts = {alert["labels"]["alertname"] for alert in self.api("alerts")["alerts"]}
            self.assertNotIn("MillstreamDown", alerts)
            server.stop()
        until("the alert", lambda: any(a["labels"]["alertname"] == "MillstreamDown" for a in self.api("alerts")["alerts"]))

    def test_a_history_with_nearly_too_many_files_for_an_hour_raises_an_alert(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not on this machine")
        run("promtool", "test", "rules", ROOT / "packaging/tests/alerts_test.yml")

    def start(self, folder, server):
        """Starts Prometheus on a free port, with the configuration as shipped but for target, token and intervals."""
        (folder / "token").write_text(TOKENS["MILLSTREAM_METRICS_TOKEN"])
        text = (COMPOSE / "prometheus.yml").read_text()
        for shipped, here in (
            ("millstream:8000", server.addresses["applications"]),
            ("/run/secrets/metrics_token", f"{folder}/token"),
            ("15s", "1s"),
        ):
            self.assertIn(shipped, text)
            text = text.replace(shipped, here)
        (folder / "prometheus.yml").write_text(text)
        shutil.copy(COMPOSE / "alerts.yml", folder)
        run("promtool", "check", "config", folder / "prometheus.yml")
        log = open(folder / "prometheus.log", "wb")
        self.addCleanup(log.close)
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
             "--web.listen-address=127.0.0.1:0"],
            stdout=log, stderr=log)
        self.addCleanup(prometheus.wait)
        self.addCleanup(prometheus.terminate)

        def address():
            assert prometheus.poll() is None, (folder / "prometheus.log").read_text()
            return re.search(r'msg="Listening on" address=(\S+)', (folder / "prometheus.log").read_text())

        self.prometheus = "http://" + until("prometheus listens", address)[1]

    def api(self, path):
        status, text = request("GET", f"{self.prometheus}/api/v1/{path}")
        self.assertEqual(status, 200, text)
        return json.loads(text)["data"]

    def has_data(self, expression):
        found = self.api("query?" + urllib.parse.urlencode({"query": expression}))["result"]
        return any(math.isfinite(float(sample["value"][1])) for sample in found)
