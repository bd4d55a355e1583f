/** Jobs: their states, the figures of their nodes and edges, what they keep, and the ways to end them. */
import {
  array,
  boolean,
  type Decoder,
  dictionary,
  type Json,
  json,
  nullable,
  number,
  object,
  string,
  withDefault,
} from "./decode";
import { ask, send } from "./http";

export const STATES = ["starting", "running", "paused", "stopped", "completed", "killed", "failed"] as const;
export type JobState = (typeof STATES)[number];

export interface Job {
  id: string;
  name: string;
  state: JobState;
  submitted: string;
  ended: string | null;
  restarts: number;
  /** The reason why it waits, is paused or has failed. */
  reason: string | null;
  /** Null if the server has not run it since its own start. */
  figures: JobFigures | null;
  /** The last epoch that is committed; null before it, and of a job without state. */
  checkpoint: Checkpoint | null;
  /** Memory of its state; null of a job without state. */
  state_bytes: number | null;
  /** The id of the job whose state it began with. */
  resumed_from: string | null;
}

export interface Checkpoint {
  epoch: number;
  at: string;
  /** The bytes that it has written, and the time that took; null of the last one of a job that does not run. */
  bytes: number | null;
  took_ms: number | null;
}

/** The epochs of a job that are committed. */
export interface Checkpoints {
  /** The nodes that keep state. */
  nodes: string[];
  /** The last ones, newest first: of the present run, or else the one that is stored. */
  checkpoints: Checkpoint[];
}

/** The keys of a node that have state, as of an epoch. */
export interface StoredKeys {
  /** Null before the first epoch. */
  epoch: number | null;
  at: string | null;
  values: { key: Json; bytes: number }[];
  /** There are others. */
  more: boolean;
}

/** Since the job was submitted, or the server started. Sums over the sources (in), the sinks (out) and all nodes (errors). */
export interface JobFigures {
  records_in: number;
  rate_in: number;
  records_out: number;
  rate_out: number;
  errors: number;
  /** Records of topics that are not processed yet; null if it reads no topic or does not run. */
  lag: number | null;
}

export interface GraphNode {
  name: string;
  type: string;
  role: "source" | "transform" | "sink";
  doc: string | null;
  instances: number;
  /** The reason why it has not started. */
  waits: string | null;
  /** Keys that have state, or rows of its table. */
  keys: number | null;
  /** Nothing older than this is expected; null without event time. */
  watermark: string | null;
  /** Null if the server has not run the job since its own start. */
  figures: NodeFigures | null;
}

export interface NodeFigures {
  records_in: number;
  records_out: number;
  rate_in: number;
  rate_out: number;
  errors: number;
  errors_by_code: ReadonlyMap<string, number>;
  /** Records that no route took. */
  unrouted: number;
  latency_ms: { p50: number | null; p99: number | null };
  /** Batches that wait for it; null if records come by a call, or the job has ended. */
  queue: { used: number; bound: number } | null;
  /** Of a source that reads a topic, while the job runs. */
  lag: number | null;
}

export interface GraphEdge {
  from: string;
  to: string;
  exchange: string;
  /** Records that have passed, and records a second over a minute; null as the figures of nodes. */
  records: number | null;
  rate: number | null;
}

export interface JobGraph {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

export interface JobError {
  node: string;
  instance: number;
  stage: string;
  code: string;
  message: string;
  /** Topic, partition and offset, if it is about a record. */
  record: string | null;
  at: string;
}

const state: Decoder<JobState> = (value, path) => {
  const text = string(value, path);
  // A state of a newer server is shown as one that nothing can be done about.
  return STATES.find((known) => known === text) ?? "failed";
};

const checkpoint = object<Checkpoint>({
  epoch: number,
  at: string,
  bytes: nullable(number),
  took_ms: nullable(number),
});

const head = object({
  id: string,
  name: string,
  state,
  submitted: string,
  ended: nullable(string),
  restarts: withDefault(number, 0),
  reason: nullable(string),
  checkpoint: nullable(checkpoint),
  state_bytes: nullable(number),
  resumed_from: nullable(string),
});

const decodeCheckpoints = object<Checkpoints>({
  nodes: withDefault(array(string), []),
  checkpoints: array(checkpoint),
});

const decodeKeys = object<StoredKeys>({
  epoch: nullable(number),
  at: nullable(string),
  values: array(object({ key: json, bytes: number })),
  more: boolean,
});

const jobFigures = object<JobFigures>({
  records_in: number,
  rate_in: number,
  records_out: number,
  rate_out: number,
  errors: withDefault(number, 0),
  lag: nullable(number),
});

export const decodeJob: Decoder<Job> = (value, path) => ({
  ...head(value, path),
  figures: ifItRan(value, path, jobFigures),
});

const node = object({
  name: string,
  type: string,
  role: string,
  doc: nullable(string),
  instances: withDefault(number, 1),
  waits: nullable(string),
  keys: nullable(number),
  watermark: nullable(string),
});

const nodeFigures = object<NodeFigures>({
  records_in: number,
  records_out: number,
  rate_in: number,
  rate_out: number,
  errors: withDefault(number, 0),
  errors_by_code: withDefault(dictionary(number), new Map()),
  unrouted: withDefault(number, 0),
  latency_ms: withDefault(object({ p50: nullable(number), p99: nullable(number) }), { p50: null, p99: null }),
  queue: nullable(object({ used: number, bound: number })),
  lag: nullable(number),
});

const decodeNode: Decoder<GraphNode> = (value, path) => {
  const { role, ...rest } = node(value, path);
  return {
    ...rest,
    role: role === "source" || role === "sink" ? role : "transform",
    figures: ifItRan(value, path, nodeFigures),
  };
};

/** Only what has run has figures. */
function ifItRan<T>(value: unknown, path: string, figures: Decoder<T>): T | null {
  const { records_in } = object({ records_in: nullable(number) })(value, path);
  return records_in === null ? null : figures(value, path);
}

export const decodeGraph: Decoder<JobGraph> = object<JobGraph>({
  nodes: array(decodeNode),
  edges: array(
    object<GraphEdge>({
      from: string,
      to: string,
      exchange: string,
      records: nullable(number),
      rate: nullable(number),
    }),
  ),
});

const decodeError = object<JobError>({
  node: string,
  instance: number,
  stage: string,
  code: string,
  message: string,
  record: nullable(string),
  at: string,
});

/** The jobs of a tenant in `state`, or all of them, newest first. */
export async function fetchJobs(tenant: string, state: string): Promise<Job[]> {
  const query = state === "" ? "" : `?${new URLSearchParams({ state })}`;
  return (await ask({ path: `/api/jobs${query}`, tenant }, array(decodeJob))).value;
}

/** The jobs of a name that have not ended. */
export async function fetchRunning(tenant: string, name: string): Promise<Job[]> {
  const jobs = (await ask({ path: `/api/jobs?${new URLSearchParams({ name })}`, tenant }, array(decodeJob))).value;
  return jobs.filter(({ ended }) => ended === null);
}

/** A job and its graph, as they are now. */
export async function fetchJob(tenant: string, id: string): Promise<{ job: Job; graph: JobGraph }> {
  const [job, graph] = await Promise.all([
    ask({ path: `${pathOf(id)}/status`, tenant }, decodeJob),
    ask({ path: `${pathOf(id)}/graph`, tenant }, decodeGraph),
  ]);
  return { job: job.value, graph: graph.value };
}

/** The document of a job, which never changes. */
export async function fetchDocument(tenant: string, id: string): Promise<Json> {
  return (await ask({ path: pathOf(id), tenant }, object({ document: json }))).value.document;
}

/** The latest errors of a job, oldest first. */
export async function fetchErrors(tenant: string, id: string): Promise<JobError[]> {
  return (await ask({ path: `${pathOf(id)}/errors`, tenant }, array(decodeError))).value;
}

/** The last epochs of a job, and the nodes that keep state. */
export async function fetchCheckpoints(tenant: string, id: string): Promise<Checkpoints> {
  return (await ask({ path: `${pathOf(id)}/checkpoints`, tenant }, decodeCheckpoints)).value;
}

/** The first keys of a node that have state, in the order of their bytes; only `key` unless it is empty. */
export async function fetchKeys(tenant: string, id: string, node: string, key: string): Promise<StoredKeys> {
  const query = new URLSearchParams(key === "" ? { node } : { node, key });
  return (await ask({ path: `${pathOf(id)}/state?${query}`, tenant }, decodeKeys)).value;
}

/** Ends a job once what it has read is finished. */
export async function stopJob(tenant: string, id: string): Promise<void> {
  await send({ path: `${pathOf(id)}/stop`, tenant, method: "POST", body: { mode: "graceful" } });
}

/** Starts a paused job again. */
export async function resumeJob(tenant: string, id: string): Promise<void> {
  await send({ path: `${pathOf(id)}/resume`, tenant, method: "POST" });
}

/** Ends a job at once and for good. */
export async function killJob(tenant: string, id: string): Promise<void> {
  await send({ path: pathOf(id), tenant, method: "DELETE" });
}

export function pathOf(id: string): string {
  return `/api/jobs/${encodeURIComponent(id)}`;
}
