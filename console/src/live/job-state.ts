/** The state of a job in one word, and the edges that carry its errors. */
import type { Checkpoint, GraphNode, Job } from "../api/jobs";
import { type Json, listOf, memberOf } from "../api/decode";

export interface JobWord {
  tone: "good" | "quiet" | "warning" | "error";
  word: string;
}

export function jobWord({ state, reason }: Pick<Job, "state" | "reason">): JobWord {
  switch (state) {
    case "starting":
      return reason === null ? { tone: "quiet", word: "Starting" } : { tone: "warning", word: "Waiting" };
    case "running":
      return { tone: "good", word: "Running" };
    case "paused":
      return { tone: "warning", word: "Paused" };
    case "completed":
      return { tone: "good", word: "Completed" };
    case "stopped":
      return { tone: "quiet", word: "Stopped" };
    case "killed":
      return { tone: "quiet", word: "Killed" };
    case "failed":
      return { tone: "error", word: "Failed" };
  }
}

/** True unless the job has ended. */
export function isAlive({ state }: Pick<Job, "state">): boolean {
  return state === "starting" || state === "running" || state === "paused";
}

/** True if a new job can begin with its state: it has ended, and an epoch is stored. */
export function canBeResumed(job: Pick<Job, "state">, checkpoints: readonly Checkpoint[]): boolean {
  return !isAlive(job) && job.state !== "completed" && checkpoints.length > 0;
}

/** True if a source reads a topic, and so has a lag while the job runs. */
export function readsTopic({ nodes }: { nodes: readonly Pick<GraphNode, "role" | "type">[] }): boolean {
  return nodes.some(({ role, type }) => role === "source" && type === "stream");
}

/** The edges, as `from,to`, that a document gives to error routes. */
export function errorEdges(document: Json | null, edges: readonly { from: string; to: string }[]): Set<string> {
  const carrying = new Set<string>();
  for (const route of listOf(memberOf(document, "routes"))) {
    if (memberOf(route, "on_error") !== true) continue;
    const [from, to] = [memberOf(route, "from"), listOf(memberOf(route, "to"))];
    for (const edge of edges) {
      const leaves = from === "all" || from === edge.from;
      // `to: all` names no edge alone: the same edges may carry other records.
      if (leaves && to.includes(edge.to)) carrying.add(edgeKey(edge));
    }
  }
  return carrying;
}

export function edgeKey({ from, to }: { from: string; to: string }): string {
  return `${from},${to}`;
}
