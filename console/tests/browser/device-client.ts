/** A device that speaks to the server over HTTP, and over MQTT by Mosquitto's clients. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Server } from "./server";

export interface TakenCommand {
  name: string;
  requestId: string | null;
  payload: string;
}

export class DeviceClient {
  constructor(
    private readonly server: Server,
    readonly id: string,
    private readonly password: string,
    private readonly tenant = "default",
  ) {}

  private get user(): string {
    return `${this.id}@${this.tenant}`;
  }

  /** Registers the device with its password, as an application would. */
  async register(document: Readonly<Record<string, unknown>> = {}): Promise<this> {
    const credential = { type: "hashed-password", "auth-id": this.id, secrets: [{ "pwd-plain": this.password }] };
    for (const [method, kind, body] of [
      ["POST", "devices", document],
      ["PUT", "credentials", [credential]],
    ] as const) {
      const path = `/v1/${kind}/${this.tenant}/${this.id}`;
      const headers = { "Content-Type": "application/json" };
      const answer = await fetch(this.server.url + path, { method, headers, body: JSON.stringify(body) });
      if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    }
    return this;
  }

  /** Sends over HTTP; gives the status. */
  async send(kind: "telemetry" | "event", payload: string, contentType = "application/json"): Promise<number> {
    return (await this.post(`/${kind}`, payload, { "Content-Type": contentType, "QoS-Level": "1" })).status;
  }

  /** Sends telemetry until it is answered with a command. */
  async takeCommand(): Promise<TakenCommand> {
    for (;;) {
      const headers = { "Content-Type": "application/json", "QoS-Level": "1" };
      const answer = await this.post("/telemetry?hono-ttd=20", '{"waits": true}', headers);
      if (!answer.ok) throw new Error(`POST /telemetry: ${answer.status} ${await answer.text()}`);
      const name = answer.headers.get("hono-command");
      if (name !== null) {
        return { name, requestId: answer.headers.get("hono-cmd-req-id"), payload: await answer.text() };
      }
    }
  }

  async answer(command: TakenCommand, status: number, payload: string): Promise<void> {
    const path = `/command/res/${command.requestId ?? ""}?hono-cmd-status=${status}`;
    const answer = await this.post(path, payload, { "Content-Type": "text/plain" });
    if (!answer.ok) throw new Error(`POST ${path}: ${answer.status} ${await answer.text()}`);
  }

  private post(path: string, body: string, headers: Readonly<Record<string, string>>): Promise<Response> {
    const login = Buffer.from(`${this.user}:${this.password}`).toString("base64");
    const all = { Authorization: `Basic ${login}`, ...headers };
    return fetch(this.server.devicesUrl + path, { method: "POST", headers: all, body });
  }

  /** Publishes over MQTT and waits for the acknowledgement. */
  async publish(topic: string, payload: string): Promise<void> {
    const publishing = spawn("mosquitto_pub", [...this.mqttArguments(), "-q", "1", "-t", topic, "-m", payload]);
    const [code] = (await once(publishing, "exit")) as [number | null];
    if (code !== 0) throw new Error(`mosquitto_pub ended with ${code ?? "a signal"}`);
  }

  /** Connects over MQTT and takes commands until it is closed; each line is a topic and a payload. */
  listen(): Listening {
    return new Listening(spawn("mosquitto_sub", [...this.mqttArguments(), "-q", "1", "-v", "-t", "command///req/#"]));
  }

  private mqttArguments(): string[] {
    const { hostname, port } = this.server.mqtt;
    return ["-h", hostname, "-p", port, "-u", this.user, "-P", this.password];
  }
}

/** An open connection that takes commands. */
export class Listening {
  #heard = "";

  constructor(private readonly process: ChildProcess) {
    process.stdout?.on("data", (piece: Buffer) => {
      this.#heard += piece.toString();
    });
  }

  get heard(): string {
    return this.#heard;
  }

  async close(): Promise<void> {
    const ended = once(this.process, "exit");
    this.process.kill("SIGTERM");
    await ended;
  }
}
