/** The jobs of a tenant, newest first, with filters by state and name. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchJobs, type Job, STATES } from "../api/jobs";
import { latest, usePolled } from "../live/remote";
import { commandFlags } from "../pages/command-flags";
import type { JobsMover, JobsPlace } from "../pages/jobs-place";
import { FirstSteps } from "./command";
import { DraftInput } from "./draft-input";
import { JobTable } from "./job-table";
import { Notice, RemoteNotice } from "./notice";
import { OpenAlarmsCard } from "./open-alarms";
import { Paging } from "./paging";
import { RoleButton } from "./role-button";

const PERIOD_MS = 2_000;
/** Pause in typing after which the filter is applied. */
const SETTLE_MS = 300;

export function JobsView({ place, onMove }: { place: JobsPlace; onMove: JobsMover }): ComponentChildren {
  const { tenant, state, name, page, limit } = place;
  const remote = usePolled(
    useCallback(() => fetchJobs(tenant, state), [tenant, state]),
    PERIOD_MS,
  );
  const known = latest(remote);
  const matching = (known ?? []).filter((job) => job.name.includes(name));
  const shown = matching.slice((page - 1) * limit, page * limit);
  return (
    <>
      <div class="page-head">
        <h1>Jobs</h1>
        <Filters place={place} known={known ?? []} onMove={onMove} />
        <RoleButton
          role="writer"
          look="primary"
          onClick={() => {
            onMove({ draft: { copyOf: null, resumes: false } }, "step");
          }}
        >
          New job
        </RoleButton>
      </div>
      {remote.kind === "stalled" && <RemoteNotice remote={remote} what="jobs" />}
      <OpenAlarmsCard place={place} job={null} />
      <section class="card cut-corners" aria-label="Jobs">
        {remote.kind !== "stalled" && <RemoteNotice remote={remote} what="jobs" />}
        {known !== null && shown.length === 0 && <Nothing place={place} />}
        {shown.length > 0 && <JobTable jobs={shown} place={place} />}
        {matching.length > 0 && (
          <Paging
            page={page}
            limit={limit}
            shown={shown.length}
            total={matching.length}
            nouns={["job", "jobs"]}
            onChange={(change) => {
              onMove(change, "step");
            }}
          />
        )}
      </section>
    </>
  );
}

function Filters(props: { place: JobsPlace; known: readonly Job[]; onMove: JobsMover }): ComponentChildren {
  const { place, known, onMove } = props;
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
      }}
    >
      <label class="filter">
        <span>State</span>
        <select
          value={place.state}
          onChange={(event) => {
            onMove({ state: event.currentTarget.value, page: 1 }, "amend");
          }}
        >
          <option value="">all states</option>
          {STATES.map((state) => (
            <option key={state} value={state}>
              {state}
            </option>
          ))}
        </select>
      </label>
      <label class="filter">
        <span>Name</span>
        <DraftInput
          value={place.name}
          placeholder="all names"
          list="job-names"
          settle_ms={SETTLE_MS}
          onCommit={(name) => {
            onMove({ name, page: 1 }, "amend");
          }}
        />
        <datalist id="job-names">
          {[...new Set(known.map((job) => job.name))].map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      </label>
    </form>
  );
}

function Nothing({ place }: { place: JobsPlace }): ComponentChildren {
  if (place.state !== "" || place.name !== "") {
    return (
      <Notice tone="quiet" title="No job matches">
        Change the filters above to see others.
      </Notice>
    );
  }
  if (place.page > 1) return <Notice tone="quiet" title="This page is beyond the last job" />;
  return (
    <FirstSteps
      title="There are no jobs yet"
      command={`millstream job new > job.yaml\nmillstream job submit job.yaml${commandFlags(place.tenant)}`}
    >
      A job reads records, works on them and writes them, all the time. Write and submit the first one here, with “New
      job”, or in a terminal:
    </FirstSteps>
  );
}
