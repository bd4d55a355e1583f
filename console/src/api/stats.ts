/** `GET /stats`: what the server does right now. Rates and latencies cover its last few seconds. */
import { array, DecodeError, type Decoder, dictionary, nullable, number, object, string } from "./decode";
import { ask } from "./http";

export interface Latency {
  p50: number | null;
  p99: number | null;
  max: number | null;
}

export interface Partition {
  partition: number;
  /** The oldest readable offset. */
  first: number;
  /** Everything below has reached the topic's level of durability. */
  stable: number;
  /** The first unwritten offset. */
  tail: number;
  bytes: number;
  /** `null` on Apache Kafka, whose brokers keep them to themselves. */
  segments: number | null;
}

export interface Topic {
  name: string;
  tenant: string;
  kind: string;
  partitions: Partition[];
}

/** The engine that keeps the log, and how it is. */
export type LogEngine =
  | {
      name: "embedded";
      /** The directory of its files; `null` for callers of one tenant. */
      dir: string | null;
    }
  | {
      name: "kafka";
      brokers: Broker[];
      troubles: LogTrouble[];
      /** Findings about the whole cluster. */
      warnings: string[];
    };

export interface Broker {
  id: number;
  /** `null` if it was away since the server began. */
  address: string | null;
  /** Seconds for which it has not answered; `null` while it does. */
  silent_s: number | null;
}

/** A partition, or a writer, with which something is wrong. */
export interface LogTrouble {
  topic: string | null;
  partition: number | null;
  kind: string;
  why: string;
}

/** The ports of a listener, without TLS and with it. */
export interface ListenerPorts {
  port: number | null;
  tls_port: number | null;
}

/** By name: applications, devices-http, devices-mqtt, kafka, redis. One that is off is not there. */
export type Listeners = ReadonlyMap<string, ListenerPorts>;

/** The rates and latencies of the few seconds that end at `uptime_s`. */
export interface RateSample {
  /** Whole seconds since the start of the server. */
  uptime_s: number;
  accepted_rate_per_s: number;
  append_rate_per_s: number;
  updates_rate_per_s: number;
  accept_p99_ms: number | null;
  sync_p99_ms: number | null;
  update_p99_ms: number | null;
}

export interface Stats {
  version: string;
  uptime_s: number;
  started_at: string;
  log: {
    append_rate_per_s: number;
    bytes_per_s: number;
    sync_p50_ms: number | null;
    sync_p99_ms: number | null;
    engine: LogEngine;
    topics: Topic[];
  };
  connect: {
    accepted_total: number;
    rejected_total: number;
    accepted_rate_per_s: number;
    latency_ms: Latency;
  };
  context: {
    entities: number;
    updates_total: number;
    updates_rate_per_s: number;
    latency_ms: Latency;
  };
  query: {
    live: number;
    records_seen_total: number;
    matched_total: number;
  };
  memory: { reserved_bytes: number; budget_bytes: number };
  rss_bytes: number;
  listeners: Listeners;
  /** The seconds that were asked for, oldest first. */
  history: RateSample[];
}

const latency: Decoder<Latency> = object<Latency>({
  p50: nullable(number),
  p99: nullable(number),
  max: nullable(number),
});

const topic: Decoder<Topic> = object<Topic>({
  name: string,
  tenant: string,
  kind: string,
  partitions: array(
    object<Partition>({
      partition: number,
      first: number,
      stable: number,
      tail: number,
      bytes: number,
      segments: nullable(number),
    }),
  ),
});

const broker: Decoder<Broker> = object<Broker>({ id: number, address: nullable(string), silent_s: nullable(number) });

const trouble: Decoder<LogTrouble> = object<LogTrouble>({
  topic: nullable(string),
  partition: nullable(number),
  kind: string,
  why: string,
});

export const decodeEngine: Decoder<LogEngine> = (value, path) => {
  const { name } = object<{ name: string }>({ name: string })(value, path);
  switch (name) {
    case "embedded":
      return { name, ...object<{ dir: string | null }>({ dir: nullable(string) })(value, path) };
    case "kafka": {
      const parts = object<{ brokers: Broker[]; troubles: LogTrouble[]; warnings: string[] }>({
        brokers: array(broker),
        troubles: array(trouble),
        warnings: array(string),
      });
      return { name, ...parts(value, path) };
    }
    default:
      throw new DecodeError(`${path}.name`, "embedded or kafka", name);
  }
};

export const decodeStats: Decoder<Stats> = object<Stats>({
  version: string,
  uptime_s: number,
  started_at: string,
  log: object<Stats["log"]>({
    append_rate_per_s: number,
    bytes_per_s: number,
    sync_p50_ms: nullable(number),
    sync_p99_ms: nullable(number),
    engine: decodeEngine,
    topics: array(topic),
  }),
  connect: object<Stats["connect"]>({
    accepted_total: number,
    rejected_total: number,
    accepted_rate_per_s: number,
    latency_ms: latency,
  }),
  context: object<Stats["context"]>({
    entities: number,
    updates_total: number,
    updates_rate_per_s: number,
    latency_ms: latency,
  }),
  query: object<Stats["query"]>({ live: number, records_seen_total: number, matched_total: number }),
  memory: object<Stats["memory"]>({ reserved_bytes: number, budget_bytes: number }),
  rss_bytes: number,
  listeners: dictionary(object<ListenerPorts>({ port: nullable(number), tls_port: nullable(number) })),
  history: array(
    object<RateSample>({
      uptime_s: number,
      accepted_rate_per_s: number,
      append_rate_per_s: number,
      updates_rate_per_s: number,
      accept_p99_ms: nullable(number),
      sync_p99_ms: nullable(number),
      update_p99_ms: nullable(number),
    }),
  ),
});

/** The figures, with the rates of the last `history_s` seconds. */
export async function fetchStats(tenant: string, history_s: number): Promise<Stats> {
  return (await ask({ path: `/stats?history_s=${history_s}`, tenant }, decodeStats)).value;
}
