/** A real broker of Apache Kafka, for servers whose log it keeps. */
import { type ChildProcess, spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

export class TestBroker {
  private constructor(
    private readonly process: ChildProcess,
    readonly address: string,
    private readonly pid: number,
  ) {}

  /** Starts one; it serves clients when this resolves. */
  static async start(): Promise<TestBroker> {
    const binary = process.env.MILLSTREAM_BIN;
    if (binary === undefined) throw new Error("MILLSTREAM_BIN must name the millstream binary to test with");
    // Built beside the binary. The broker ends with its input, and so with this process.
    const xtask = join(dirname(binary), "xtask");
    const child = spawn(xtask, ["kafka", "--port", "0", "--end-with-input"], { stdio: ["pipe", "pipe", "inherit"] });
    let broker: TestBroker | null = null;
    for await (const line of createInterface({ input: child.stdout })) {
      const [, address, pid] = /^broker (\S+) pid (\d+)$/.exec(line) ?? [];
      if (address !== undefined) broker = new TestBroker(child, address, Number(pid));
      if (line.startsWith("ready ") && broker !== null) {
        child.stdout.resume();
        return broker;
      }
    }
    throw new Error("the broker ended before it served clients: run scripts/setup-clients");
  }

  /** Has it answer nothing until {@link resume}. */
  pause(): void {
    process.kill(this.pid, "SIGSTOP");
  }

  resume(): void {
    process.kill(this.pid, "SIGCONT");
  }

  stop(): void {
    this.process.stdin?.end();
  }

  /** The settings of a server whose log it keeps. */
  settings(): string {
    const settings = { brokers: [this.address], replication_factor: 1, min_insync_replicas: 1 };
    const lines = Object.entries(settings).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
    return ["[log]", 'engine = "kafka"', "[log.kafka]", ...lines, ""].join("\n");
  }
}
