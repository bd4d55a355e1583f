/** The running job that has a name: the one that a new document of that name may replace. */
import { useCallback } from "preact/hooks";
import { fetchRunning, type Job } from "../api/jobs";
import { holderOfName } from "./job-lineage";
import { latest, usePolled } from "./remote";

const PERIOD_MS = 2_000;

/** Null if there is none, and while it is not known. */
export function useRunningJob(tenant: string, name: string): Job | null {
  const remote = usePolled(
    useCallback(
      // No job has an empty name.
      async () => ({ name, jobs: name === "" ? [] : await fetchRunning(tenant, name) }),
      [tenant, name],
    ),
    PERIOD_MS,
  );
  const known = latest(remote);
  // The answer about another name is not shown as the one about this name.
  return known?.name === name ? holderOfName(known.jobs) : null;
}
