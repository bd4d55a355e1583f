/** A real server with a directory of its own, and a few devices that speak to it over HTTP. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export interface Device {
  id: string;
  name: string;
  longitude: number;
  latitude: number;
}

export const NEWARK: Device = { id: "EWR", name: "Newark Liberty", longitude: -74.1687, latitude: 40.6925 };
export const KENNEDY: Device = { id: "JFK", name: "John F Kennedy", longitude: -73.7789, latitude: 40.6398 };
export const STATIONS = [NEWARK, KENNEDY];

const PASSWORD = "a-password-for-tests";
const TENANT = "default";

/**
 * A loopback address of this process alone, so that nobody takes a port while the server is away; the system gives
 * ports of 127.0.0.1.
 */
const OWN_ADDRESS = `127.${0x80 | (process.pid >> 16)}.${(process.pid >> 8) & 0xff}.${process.pid & 0xff}:0`;

export class Server {
  private constructor(
    private process: ChildProcess,
    private readonly dataDir: string,
    /** Where the console is. */
    readonly url: string,
    /** Where devices send over HTTP. */
    readonly devicesUrl: string,
    /** Where devices connect by MQTT, as host and port; another port after a restart. */
    readonly mqtt: URL,
    /** What requests of the tests carry; empty where no login is needed. */
    private readonly token: string,
  ) {}

  /**
   * Starts a server that needs no login, or one with the token of an operator. `settings` are tables of a configuration
   * file.
   */
  static async start(operator = "", settings = ""): Promise<Server> {
    const dataDir = await mkdtemp(join(tmpdir(), "millstream-console-"));
    await writeFile(settingsOf(dataDir), settings + tokenOf(operator));
    // Clients of Kafka speak to the brokers, if those keep the log.
    const count = settings.includes('engine = "kafka"') ? LISTENERS - 1 : LISTENERS;
    const { process, listeners } = await launch(dataDir, OWN_ADDRESS, OWN_ADDRESS, count);
    const [applications, devices] = [listener(listeners, "applications"), listener(listeners, "devices-http")];
    return new Server(process, dataDir, applications, devices, new URL(listener(listeners, "devices-mqtt")), operator);
  }

  /** Ends the process as a power cut would, and keeps the directory. */
  async kill(): Promise<void> {
    const ended = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await ended;
  }

  /** Starts again after {@link kill}, at the same addresses. */
  async restart(): Promise<void> {
    const { process } = await launch(this.dataDir, new URL(this.url).host, new URL(this.devicesUrl).host);
    this.process = process;
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = once(this.process, "exit");
      this.process.kill("SIGTERM");
      await ended;
    }
    await rm(this.dataDir, { recursive: true, force: true });
    await rm(settingsOf(this.dataDir), { force: true });
  }

  async register(device: Device): Promise<void> {
    const place = { type: "Point", coordinates: [device.longitude, device.latitude] };
    const attributes = {
      name: { type: "Text", value: device.name },
      location: { type: "geo:json", value: place },
    };
    const credential = { type: "hashed-password", "auth-id": device.id, secrets: [{ "pwd-plain": PASSWORD }] };
    await this.call("POST", `/v1/tenants/${TENANT}`, {}, [201, 409]);
    await this.call("POST", `/v1/devices/${TENANT}/${device.id}`, { ext: { context: { static: attributes } } }, [201]);
    await this.call("PUT", `/v1/credentials/${TENANT}/${device.id}`, [credential], [204]);
  }

  /** Sends one measurement as the device would, and waits until it is accepted. */
  async measure(device: Device, payload: Readonly<Record<string, unknown>>): Promise<void> {
    await this.sendText(device, JSON.stringify(payload));
  }

  /** Sends any text as a measurement. */
  async sendText(device: Device, body: string): Promise<void> {
    const login = Buffer.from(`${device.id}@${TENANT}:${PASSWORD}`).toString("base64");
    const answer = await fetch(`${this.devicesUrl}/telemetry`, {
      method: "POST",
      headers: { Authorization: `Basic ${login}`, "Content-Type": "application/json", "QoS-Level": "1" },
      body,
    });
    if (answer.status !== 202) throw new Error(`POST /telemetry: ${answer.status} ${await answer.text()}`);
  }

  /** Creates a topic that holds these values. */
  async fill(topic: string, values: readonly unknown[]): Promise<void> {
    await this.call("PUT", `/api/streams/${topic}`, {}, [201]);
    const records = values.map((value) => ({ value }));
    await this.call("POST", `/api/streams/${topic}/records`, records, [200]);
  }

  /** Creates an entity from its normalized form. */
  async createEntity(entity: Readonly<Record<string, unknown>>): Promise<void> {
    await this.call("POST", "/v2/entities", entity, [201]);
  }

  /** Changes the value of an attribute, as an application would. */
  async setValue(entity: string, attribute: string, value: unknown): Promise<void> {
    await this.call("PATCH", `/v2/entities/${entity}/attrs?options=keyValues`, { [attribute]: value }, [204]);
  }

  /** Has every change of the entities of a type told to `url`. */
  async subscribe(description: string, type: string, url: string, queue: "memory" | "durable"): Promise<void> {
    const subject = { entities: [{ idPattern: ".*", type }] };
    const notification = { http: { url }, delivery: { queue } };
    await this.call("POST", "/v2/subscriptions", { description, subject, notification }, [201]);
  }

  /** Creates a topic with one partition. */
  async createTopic(topic: string): Promise<void> {
    await this.call("PUT", `/api/streams/${topic}`, { partitions: 1 }, [200, 201]);
  }

  async append(topic: string, records: readonly Readonly<Record<string, unknown>>[]): Promise<void> {
    await this.call("POST", `/api/streams/${topic}/records`, records, [200, 201]);
  }

  async submitJob(document: Readonly<Record<string, unknown>>): Promise<void> {
    await this.call("POST", "/api/jobs", document, [201]);
  }

  /** Makes a bucket of the store, or changes it. */
  async putBucket(bucket: string, settings: Readonly<Record<string, unknown>>): Promise<void> {
    await this.call("PUT", `/buckets/${bucket}`, settings, [200, 201]);
  }

  async bucket(bucket: string): Promise<unknown> {
    return (await fetch(`${this.url}/buckets/${bucket}`)).json();
  }

  /** Makes an API token and returns its secret. */
  async makeToken(token: Readonly<Record<string, unknown>>): Promise<string> {
    const answer = await this.call("POST", "/api/tokens", token, [201]);
    return ((await answer.json()) as { token: string }).token;
  }

  async revokeToken(name: string): Promise<void> {
    await this.call("DELETE", `/api/tokens/${name}`, undefined, [204]);
  }

  async makeTenant(tenant: string, settings: Readonly<Record<string, unknown>>): Promise<void> {
    await this.call("POST", `/v1/tenants/${tenant}`, settings, [201]);
  }

  /** Registers a device without credentials. */
  async makeDevice(tenant: string, id: string): Promise<void> {
    await this.call("POST", `/v1/devices/${tenant}/${id}`, {}, [201]);
  }

  async hasDevice(tenant: string, id: string): Promise<boolean> {
    return (await this.call("GET", `/v1/devices/${tenant}/${id}`, undefined, [200, 404])).status === 200;
  }

  /** What the registry holds of a tenant. */
  async tenant(tenant: string): Promise<unknown> {
    return (await this.call("GET", `/v1/tenants/${tenant}`, undefined, [200, 404])).json();
  }

  /** Stores a value under a key, which is part of the path as it is. */
  async putValue(
    bucket: string,
    key: string,
    value: string | Buffer<ArrayBuffer>,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const answer = await fetch(`${this.url}/kv/${bucket}/${key}`, {
      method: "PUT",
      headers: this.withToken(headers),
      body: value,
    });
    if (!answer.ok) throw new Error(`PUT ${key}: ${answer.status} ${await answer.text()}`);
  }

  private withToken(given: Readonly<Record<string, string>>): Headers {
    const headers = new Headers(given);
    if (this.token !== "") headers.set("Authorization", `Bearer ${this.token}`);
    return headers;
  }

  private async call(method: string, path: string, body: unknown, expected: readonly number[]): Promise<Response> {
    const headers = this.withToken({ "Content-Type": "application/json" });
    const init = body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) };
    const answer = await fetch(this.url + path, init);
    if (expected.includes(answer.status)) return answer;
    throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  }
}

/** Where the settings of a server lie: beside its data, which are its own. */
function settingsOf(dataDir: string): string {
  return `${dataDir}.toml`;
}

/** The table of an API token that may do everything; empty without one. */
function tokenOf(operator: string): string {
  if (operator === "") return "";
  const token = { name: "operator", token: operator, tenant: "*", roles: ["reader", "writer", "admin"] };
  const lines = Object.entries(token).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  return ["", "[[applications.tokens]]", ...lines, ""].join("\n");
}

interface Launched {
  process: ChildProcess;
  /** Name → address, as the server prints them. */
  listeners: ReadonlyMap<string, string>;
}

/** HTTP for applications and devices, Kafka, MQTT and Redis. */
const LISTENERS = 5;

/** Resolves when all listeners have been announced. */
async function launch(dataDir: string, applications: string, devices: string, count = LISTENERS): Promise<Launched> {
  const binary = process.env.MILLSTREAM_BIN;
  if (binary === undefined) throw new Error("MILLSTREAM_BIN must name the millstream binary to test with");
  const child = spawn(
    binary,
    [
      ...["serve", "--data-dir", dataDir, "--listen-applications", applications, "--listen-devices-http", devices],
      // Free ports: another server may run on this machine.
      ...["--listen-kafka", "127.0.0.1:0", "--listen-devices-mqtt", "127.0.0.1:0", "--listen-redis", "127.0.0.1:0"],
      // A disk that stalls for a second must not refuse a message.
      ...["--set", "connect.http.send_timeout_ms=60000"],
      ...["--config", settingsOf(dataDir)],
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  // However this process ends, the server does not outlive it.
  const kill = (): boolean => child.kill("SIGKILL");
  process.once("exit", kill);
  child.once("exit", () => process.off("exit", kill));
  const said: string[] = [];
  child.stderr.on("data", (piece: Buffer) => said.push(piece.toString()));
  const listeners = new Map<string, string>();
  for await (const line of createInterface({ input: child.stdout })) {
    const [, name, url] = /^listening (\S+) (\S+)$/.exec(line) ?? [];
    if (name !== undefined && url !== undefined) listeners.set(name, url);
    if (listeners.size === count) {
      // Nobody reads on: what the server prints from here must not block it.
      child.stdout.resume();
      return { process: child, listeners };
    }
  }
  throw new Error(`the server ended before it listened:\n${said.join("")}`);
}

function listener(listeners: ReadonlyMap<string, string>, begins: string): string {
  const found = [...listeners].find(([name]) => name.startsWith(begins));
  if (found === undefined) throw new Error(`the server announced no listener for ${begins}`);
  return found[1].replace(/\/$/, "");
}
