"""Three brokers and two processes, as compose.kafka.yaml has them: what it says, and real ones with the same settings."""

import os
import re
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from packages import BINARY, run, version
from server import ROOT, request, until

try:
    import yaml
except ImportError:
    yaml = None

COMPOSE = ROOT / "packaging/compose"
TOKEN = "0123456789-operator"
# Of each broker, and not of this machine.
OF_CONTAINERS = {
    "CLUSTER_ID", "KAFKA_PROCESS_ROLES", "KAFKA_CONTROLLER_QUORUM_VOTERS", "KAFKA_CONTROLLER_LISTENER_NAMES", "KAFKA_LISTENERS",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "KAFKA_LOG_DIRS", "KAFKA_NODE_ID", "KAFKA_ADVERTISED_LISTENERS",
}


def services():
    return yaml.safe_load((COMPOSE / "compose.kafka.yaml").read_text())["services"]


def broker_settings():
    """The lines of server.properties that all brokers share."""
    environment = services()["kafka-1"]["environment"]
    names = [name for name in environment if name not in OF_CONTAINERS]
    return "".join(f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={environment[name]}\n" for name in names)


def environment(service):
    """The environment of a Millstream process, with its token filled in."""
    found = services()[service]["environment"]
    return {name: re.sub(r"\$\{MILLSTREAM_TOKEN:\?[^}]*\}", TOKEN, value) for name, value in found.items()}


@unittest.skipIf(yaml is None, "PyYAML is not installed")
class ComposeFile(unittest.TestCase):
    def test_three_brokers_keep_what_is_acknowledged_on_two(self):
        all_services = services()
        brokers = [all_services[f"kafka-{number}"] for number in (1, 2, 3)]
        for number, broker in enumerate(brokers, 1):
            settings = broker["environment"]
            self.assertEqual(settings["KAFKA_NODE_ID"], str(number))
            self.assertIn(f"{number}@kafka-{number}:9093", settings["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(","))
            self.assertEqual(settings["KAFKA_ADVERTISED_LISTENERS"], f"PLAINTEXT://kafka-{number}:9092")
            self.assertEqual(broker["hostname"], f"kafka-{number}")
            self.assertEqual(len(settings["CLUSTER_ID"]), 22, "sixteen bytes in base64")
            for name, least in [("TRANSACTION_STATE_LOG_REPLICATION_FACTOR", 3), ("TRANSACTION_STATE_LOG_MIN_ISR", 2),
                                ("DEFAULT_REPLICATION_FACTOR", 3), ("MIN_INSYNC_REPLICAS", 2)]:
                self.assertGreaterEqual(int(settings[f"KAFKA_{name}"]), least, name)
            self.assertRegex(broker["image"], r"^apache/kafka:4\.[1-9]")
        volumes = [broker["volumes"] for broker in brokers]
        self.assertEqual(len({str(volume) for volume in volumes}), 3, "each has data of its own")

    def test_both_processes_have_the_same_settings_and_data_of_their_own(self):
        one, two = (services()[f"millstream-{number}"] for number in (1, 2))
        self.assertEqual(one["environment"], two["environment"])
        self.assertNotEqual(one["volumes"], two["volumes"])
        known = re.fullmatch(r"millstream:\$\{MILLSTREAM_VERSION:-([^}]+)\}", one["image"])[1]
        self.assertEqual(version(), known)
        with tempfile.TemporaryDirectory() as folder:
            data = f"{folder}/data"
            checked = run(BINARY, "config", "check", "--data-dir", data, env={**os.environ, **environment("millstream-1")})
            self.assertNotIn("error", checked.lower())
            shown = run(BINARY, "config", "show", "--data-dir", data, env={**os.environ, **environment("millstream-1")})
        self.assertRegex(shown, r'engine = "kafka"')
        self.assertRegex(shown, r'brokers = \["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"\]')

    def test_the_proxy_leads_each_published_port_to_the_process_that_works(self):
        proxy = services()["proxy"]
        for mounted in proxy["volumes"]:
            self.assertTrue((COMPOSE / mounted.split(":")[0]).exists(), mounted)
        text = (COMPOSE / "haproxy.cfg").read_text()
        self.assertIn("option httpchk GET /readyz", text)
        listens = environment("millstream-1")
        for published in proxy["ports"]:
            port = published.rsplit(":", 1)[1]
            for number in (1, 2):
                self.assertIn(f"server millstream-{number} millstream-{number}:{port}\n", text + "\n")
            self.assertIn(f"0.0.0.0:{port}", listens.values())


@unittest.skipIf(yaml is None, "PyYAML is not installed")
class Takeover(unittest.TestCase):
    takes_long = True

    def test_two_processes_on_three_brokers_of_these_settings_take_over_from_each_other(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "server.properties").write_text(broker_settings())
        kafka = subprocess.Popen(
            [Path(BINARY).parent / "xtask", "kafka", "--brokers", "3", "--port", "0", "--end-with-input", "--settings",
             folder / "server.properties"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (kafka.stdin.close(), kafka.wait(), kafka.stdout.close()))
        brokers = []
        for line in kafka.stdout:
            if line.startswith("broker "):
                brokers.append(line.split()[1])
            if line.startswith("ready "):
                break
        self.assertEqual(len(brokers), 3)
        processes = {}

        def start(number):
            address = f"127.0.0.{number + 1}"
            of_this_machine = {
                "MILLSTREAM__LOG__KAFKA__BROKERS": str(brokers).replace("'", '"'),
                **{f"MILLSTREAM__LISTEN__{name}": f"{address}:{port}" for name, port in
                   [("APPLICATIONS", 18000), ("DEVICES_HTTP", 18080), ("DEVICES_MQTT", 18883), ("REDIS", 16379)]},
            }
            log = open(folder / f"{number}.log", "ab")
            self.addCleanup(log.close)
            processes[number] = subprocess.Popen(
                [BINARY, "serve", "--data-dir", folder / str(number)], stdout=log, stderr=log,
                env={**os.environ, **environment(f"millstream-{number}"), **of_this_machine})
            self.addCleanup(lambda: (processes[number].kill(), processes[number].wait()))

        def ready(number):
            return request("GET", f"http://127.0.0.{number + 1}:18000/readyz")

        def entities(number, method, path, body=None):
            headers = {"Authorization": f"Bearer {TOKEN}"}
            return request(method, f"http://127.0.0.{number + 1}:18000/v2/entities{path}", body, headers)

        start(1)
        until("the first works", lambda: ready(1)[0] == 200)
        self.assertIn("log: Apache Kafka, 3 of 3 brokers answer", ready(1)[1])
        self.assertNotIn("degraded", ready(1)[1])
        self.assertEqual(entities(1, "POST", "", {"id": "e", "type": "T", "n": {"value": 1}})[0], 201)
        start(2)
        until("the second stands by", lambda: ready(2)[0] == 503 and ready(2)[1].startswith("stands by: process "))
        self.assertEqual(entities(2, "GET", "/e")[0], 503)
        processes[1].send_signal(signal.SIGKILL)
        until("the second takes over", lambda: ready(2)[0] == 200)
        self.assertEqual(entities(2, "GET", "/e/attrs/n/value"), (200, "1"))
