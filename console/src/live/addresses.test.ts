import { expect, test } from "vitest";
import type { Listeners } from "../api/stats";
import { Addresses, commands } from "./addresses";

const DATA = `'{"temp": 21.5}'`;

function of(listeners: Listeners | null, protocol: string): (string | null)[] {
  const addresses = new Addresses(listeners, { hostname: "host", protocol });
  return [
    addresses.httpMessage("d@t", "hush", "/telemetry"),
    addresses.mqttMessage("d@t", "hush", "telemetry"),
    addresses.kafkaRecord("orders"),
  ];
}

function all(port: number | null, tls_port: number | null): Listeners {
  return new Map(["devices-http", "devices-mqtt", "kafka"].map((name) => [name, { port, tls_port }]));
}

const PLAIN = [
  `curl -u d@t:hush http://host:18/telemetry -H 'Content-Type: application/json' -d ${DATA}`,
  `mosquitto_pub -h host -p 18 -u d@t -P hush -t telemetry -q 1 -m ${DATA}`,
  "printf 'a:1\\n' | kcat -b host:18 -P -t orders -K :",
];
const TLS = [
  `curl -u d@t:hush https://host:19/telemetry -H 'Content-Type: application/json' -d ${DATA}`,
  `mosquitto_pub -h host -p 19 --tls-use-os-certs -u d@t -P hush -t telemetry -q 1 -m ${DATA}`,
  "printf 'a:1\\n' | kcat -b host:19 -X security.protocol=ssl -P -t orders -K :",
];

test("a page without TLS names the ports without it if there are some", () => {
  expect(of(all(18, 19), "http:")).toEqual(PLAIN);
  expect(of(all(18, null), "https:")).toEqual(PLAIN);
});

test("a page over TLS, or a server that has nothing else, names the ports with TLS", () => {
  expect(of(all(18, 19), "https:")).toEqual(TLS);
  expect(of(all(null, 19), "http:")).toEqual(TLS);
});

test("there are no commands for a listener that is off", () => {
  const off = of(new Map(), "http:");
  expect(off).toEqual([null, null, null]);
  expect(commands(...off)).toBeUndefined();
  expect(commands("a", null, "b")).toBe("a\nb");
});

test("the usual ports are named until the server has told its own", () => {
  expect(of(null, "http:")[0]).toContain("http://host:8080/telemetry");
});

test("a gateway names the device for which it sends", () => {
  const page = { hostname: "host", protocol: "http:" };
  const sent = new Addresses(null, page).httpMessage("g@t", "hush", "/telemetry//d");
  expect(sent).toContain("-X PUT http://host:8080/telemetry//d");
});
