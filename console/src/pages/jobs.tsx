/** Jobs: the list of them, one with its graph, or a new one that is being written. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { JobView } from "../parts/job-view";
import { JobsView } from "../parts/jobs-view";
import { NewJob } from "../parts/new-job";
import { go, href } from "../route";
import { type JobsMover, jobsParams, type JobsPlace, jobsPlace } from "./jobs-place";

export function JobsPage({ params }: { params: URLSearchParams }): ComponentChildren {
  const place = useMemo(() => jobsPlace(params), [params]);
  const move: JobsMover = (change, how) => {
    go(href("jobs", jobsParams({ ...place, ...change })), how);
  };
  return <div class="page">{view(place, move)}</div>;
}

function view(place: JobsPlace, move: JobsMover): ComponentChildren {
  const { tenant, job, draft } = place;
  if (draft !== null) {
    const { copyOf, resumes } = draft;
    return <NewJob key={`${tenant} ${resumes} ${copyOf ?? ""}`} {...draft} place={place} onMove={move} />;
  }
  return job === null ? (
    <JobsView place={place} onMove={move} />
  ) : (
    <JobView key={job} id={job} place={place} onMove={move} />
  );
}
