/** The jobs before and after one job: whose state it began with, and which job has taken its place. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchCheckpoints, fetchJobs, type Job } from "../api/jobs";
import { type Successor, successorOf } from "../live/job-lineage";
import { latest, usePolled } from "../live/remote";
import { jobsParams, type JobsPlace } from "../pages/jobs-place";
import { follow, href } from "../route";

const PERIOD_MS = 3_000;
/** The last epoch of a job that has ended never changes; it is asked for again only because the first attempt may have failed. */
const EPOCH_PERIOD_MS = 60_000;

const WAYS: Readonly<Record<Successor["way"], string>> = {
  replacing: "being replaced by",
  replaced: "replaced by",
  resumed: "resumed by",
};

export function JobLineage({ job, place }: { job: Job; place: JobsPlace }): ComponentChildren {
  const { tenant } = place;
  const jobs = latest(
    usePolled(
      useCallback(() => fetchJobs(tenant, ""), [tenant]),
      PERIOD_MS,
    ),
  );
  const next = successorOf(job, jobs ?? []);
  if (job.resumed_from === null && next === null) return null;
  const earlier = jobs?.find(({ id }) => id === job.resumed_from) ?? null;
  return (
    <ul class="facts job-lineage" aria-label="Jobs before and after">
      {job.resumed_from !== null && (
        <li>
          goes on from{" "}
          {earlier === null ? <code>{job.resumed_from}</code> : <JobLink job={earlier} of={job} place={place} />}
          {earlier?.ended != null && <LastEpoch tenant={tenant} id={earlier.id} />}
        </li>
      )}
      {next !== null && (
        <li>
          {WAYS[next.way]} <JobLink job={next.job} of={job} place={place} />
        </li>
      )}
    </ul>
  );
}

/** Its name, too, if that is another one. */
function JobLink({ job, of, place }: { job: Job; of: Job; place: JobsPlace }): ComponentChildren {
  return (
    <a href={href("jobs", jobsParams({ ...place, job: job.id, edge: null, keys: null }))} onClick={follow}>
      {job.name !== of.name && `${job.name} `}
      <code>{job.id}</code>
    </a>
  );
}

function LastEpoch({ tenant, id }: { tenant: string; id: string }): ComponentChildren {
  const known = latest(
    usePolled(
      useCallback(() => fetchCheckpoints(tenant, id), [tenant, id]),
      EPOCH_PERIOD_MS,
    ),
  );
  const epoch = known?.checkpoints[0]?.epoch;
  return epoch === undefined ? null : <> (epoch {epoch})</>;
}
