/** The jobs that one job goes on from, and that go on from it. */
import type { Job } from "../api/jobs";

export interface Successor {
  job: Job;
  /** `replacing` waits until this one has stopped, `replaced` has taken its place, `resumed` began with its state after its end. */
  way: "replacing" | "replaced" | "resumed";
}

type Span = Pick<Job, "id" | "ended">;

/** The job that has taken the place of `job`, or else the newest that began with its state; `jobs` are newest first. */
export function successorOf(job: Span, jobs: readonly Job[]): Successor | null {
  const next = jobs
    .filter(({ resumed_from }) => resumed_from === job.id)
    .map((other) => ({ job: other, way: wayOf(job, other) }));
  return next.find(({ way }) => way !== "resumed") ?? next[0] ?? null;
}

/** The job of a name that runs, of those that have not ended, newest first: a newer one waits to take its place. */
export function holderOfName(jobs: readonly Job[]): Job | null {
  return jobs.at(-1) ?? null;
}

/** A job that replaces another is submitted while that one runs; one that resumes another, after its end. */
function wayOf({ ended }: Span, next: Job): Successor["way"] {
  if (ended === null) return "replacing";
  return Date.parse(next.submitted) <= Date.parse(ended) ? "replaced" : "resumed";
}
