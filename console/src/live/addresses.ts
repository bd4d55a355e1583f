/** How programs on other machines reach the server, for the commands that pages show. */
import { createContext } from "preact";
import type { ListenerPorts, Listeners } from "../api/stats";

/** The usual ports, until the server has said which ones it has. */
const USUAL: Listeners = new Map<string, ListenerPorts>([
  ["devices-http", { port: 8080, tls_port: null }],
  ["devices-mqtt", { port: 1883, tls_port: null }],
  ["kafka", { port: 9092, tls_port: null }],
]);

const MEASUREMENT = '{"temp": 21.5}';

export class Addresses {
  readonly #listeners: Listeners;
  readonly #page: Pick<Location, "hostname" | "protocol">;

  constructor(listeners: Listeners | null, page: Pick<Location, "hostname" | "protocol">) {
    this.#listeners = listeners ?? USUAL;
    this.#page = page;
  }

  /** The command by which a device sends a measurement over HTTP; null: none is taken. */
  httpMessage(user: string, password: string, resource: string): string | null {
    const at = this.#find("devices-http");
    if (at === null) return null;
    // A gateway names the device for which it sends.
    const method = resource.includes("//") ? " -X PUT" : "";
    const url = `http${at.tls ? "s" : ""}://${this.#page.hostname}:${at.port}${resource}`;
    return `curl -u ${user}:${password}${method} ${url} -H 'Content-Type: application/json' -d '${MEASUREMENT}'`;
  }

  /** As {@link httpMessage}, over MQTT. */
  mqttMessage(user: string, password: string, topic: string): string | null {
    const at = this.#find("devices-mqtt");
    if (at === null) return null;
    const server = `-h ${this.#page.hostname} -p ${at.port}${at.tls ? " --tls-use-os-certs" : ""}`;
    return `mosquitto_pub ${server} -u ${user} -P ${password} -t ${topic} -q 1 -m '${MEASUREMENT}'`;
  }

  /** The command by which a Kafka client appends a record; null: none is served. */
  kafkaRecord(topic: string): string | null {
    const at = this.#find("kafka");
    if (at === null) return null;
    const server = `-b ${this.#page.hostname}:${at.port}${at.tls ? " -X security.protocol=ssl" : ""}`;
    return `printf 'a:1\\n' | kcat ${server} -P -t ${topic} -K :`;
  }

  /** With TLS where the page came over it, or where nothing else is there. */
  #find(listener: string): { port: number; tls: boolean } | null {
    const ports = this.#listeners.get(listener);
    if (ports === undefined) return null;
    const { port, tls_port } = ports;
    if (tls_port !== null && (port === null || this.#page.protocol === "https:")) return { port: tls_port, tls: true };
    return port === null ? null : { port, tls: false };
  }
}

export const AddressesContext = createContext(new Addresses(null, { hostname: "127.0.0.1", protocol: "http:" }));

/** The commands that there are, each on a line; `undefined` for none. */
export function commands(...lines: readonly (string | null)[]): string | undefined {
  const there = lines.filter((line) => line !== null);
  return there.length === 0 ? undefined : there.join("\n");
}
