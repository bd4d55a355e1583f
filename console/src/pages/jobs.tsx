/** Jobs: the list of them, or one with its graph. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { JobView } from "../parts/job-view";
import { JobsView } from "../parts/jobs-view";
import { go, href } from "../route";
import { type JobsMover, jobsParams, jobsPlace } from "./jobs-place";

export function JobsPage({ params }: { params: URLSearchParams }): ComponentChildren {
  const place = useMemo(() => jobsPlace(params), [params]);
  const move: JobsMover = (change, how) => {
    go(href("jobs", jobsParams({ ...place, ...change })), how);
  };
  return (
    <div class="page">
      {place.job === null ? (
        <JobsView place={place} onMove={move} />
      ) : (
        <JobView key={place.job} id={place.job} place={place} onMove={move} />
      )}
    </div>
  );
}
