/** One job: its state, its graph with live figures, the records on an edge, its errors and its document. */
import type { ComponentChildren } from "preact";
import { useCallback, useMemo, useState } from "preact/hooks";
import {
  type Checkpoints,
  fetchCheckpoints,
  fetchDocument,
  fetchJob,
  type Job,
  type JobFigures,
  type JobGraph,
} from "../api/jobs";
import type { Json } from "../api/decode";
import { counted, short } from "../format";
import { canBeResumed, edgeKey, errorEdges, isAlive, readsTopic } from "../live/job-state";
import { latest, usePolled } from "../live/remote";
import { jobsParams, type JobsMover, type JobsPlace } from "../pages/jobs-place";
import { follow, href } from "../route";
import { JobActions } from "./job-actions";
import { JobErrors } from "./job-errors";
import { JobGraphView } from "./job-graph";
import { JobLineage } from "./job-lineage";
import { JobStateCard } from "./job-state-card";
import { JobTap } from "./job-tap";
import { JobBadge } from "./job-table";
import { Notice, RemoteNotice } from "./notice";
import { OpenAlarmsCard } from "./open-alarms";
import { RoleButton } from "./role-button";
import { When } from "./subscription-table";
import { Tile } from "./tile";

const PERIOD_MS = 1_000;
const CHECKPOINTS_PERIOD_MS = 2_000;
/** A document never changes; it is asked for again only because the first attempt may have failed. */
const DOCUMENT_PERIOD_MS = 60_000;

export function JobView(props: { id: string; place: JobsPlace; onMove: JobsMover }): ComponentChildren {
  const { id, place, onMove } = props;
  const { tenant, edge } = place;
  const [told, setTold] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchJob(tenant, id).then((found) => ({ ...found, told })), [tenant, id, told]),
    PERIOD_MS,
  );
  const document = latest(
    usePolled(
      useCallback(() => fetchDocument(tenant, id), [tenant, id]),
      DOCUMENT_PERIOD_MS,
    ),
  );
  const known = latest(remote);
  const stored = useCheckpoints(tenant, id, known === null || isAlive(known.job));
  const ofErrors = useMemo(() => errorEdges(document, known?.graph.edges ?? []), [document, known]);
  return (
    <>
      <div class="page-head">
        <nav aria-label="Way back" class="crumb">
          <a href={href("jobs", jobsParams({ ...place, job: null, edge: null, keys: null }))} onClick={follow}>
            Jobs
          </a>
          <span aria-hidden="true">›</span>
        </nav>
        <h1>{known?.job.name ?? id}</h1>
        {known !== null && (
          <>
            <span role="status">
              <JobBadge job={known.job} />
            </span>
            <Facts job={known.job} />
            <span class="spring" />
            <RoleButton
              role="writer"
              onClick={() => {
                onMove({ ...NOTHING_OPEN, draft: { copyOf: id, resumes: false } }, "step");
              }}
            >
              Copy as new job
            </RoleButton>
            {canBeResumed(known.job, stored?.checkpoints ?? []) && (
              <RoleButton
                role="writer"
                onClick={() => {
                  onMove({ ...NOTHING_OPEN, draft: { copyOf: id, resumes: true } }, "step");
                }}
              >
                Edit and resume
              </RoleButton>
            )}
            {isAlive(known.job) && (
              <JobActions
                tenant={tenant}
                job={known.job}
                onDone={() => {
                  setTold((before) => before + 1);
                }}
              />
            )}
          </>
        )}
      </div>
      {known !== null && <JobLineage job={known.job} place={place} />}
      <RemoteNotice remote={remote} what="this job" />
      {known !== null && (
        <>
          {known.job.reason !== null && <Reason job={known.job} />}
          {known.job.figures !== null && (
            <Tiles figures={known.job.figures} alive={isAlive(known.job)} graph={known.graph} />
          )}
          <JobGraphView
            graph={known.graph}
            ofErrors={ofErrors}
            alive={isAlive(known.job)}
            tapped={edge}
            onTap={(chosen) => {
              onMove({ edge: edge !== null && edgeKey(chosen) === edgeKey(edge) ? null : chosen }, "amend");
            }}
          />
          {edge !== null && (
            <JobTap
              key={edgeKey(edge)}
              tenant={tenant}
              job={id}
              edge={edge}
              rate={place.rate}
              onRate={(rate) => {
                onMove({ rate }, "amend");
              }}
              onClose={() => {
                onMove({ edge: null }, "amend");
              }}
            />
          )}
        </>
      )}
      {known !== null && isAlive(known.job) && known.graph.nodes.some((node) => node.type === "alarm") && (
        <OpenAlarmsCard place={place} job={id} />
      )}
      {known !== null && <JobStateCard {...known} stored={stored} place={place} onMove={onMove} />}
      {known !== null && (
        <div class="job-parts">
          <JobErrors tenant={tenant} id={id} />
          <Document document={document} />
        </div>
      )}
    </>
  );
}

/** What is left behind where another page opens. */
const NOTHING_OPEN = { job: null, edge: null, keys: null };

/** Those of a job that has ended never change, and are read from the disk. */
function useCheckpoints(tenant: string, id: string, isAlive: boolean): Checkpoints | null {
  return latest(
    usePolled(
      // The end of the job asks again at once.
      useCallback(() => fetchCheckpoints(tenant, id).then((found) => ({ ...found, isAlive })), [tenant, id, isAlive]),
      isAlive ? CHECKPOINTS_PERIOD_MS : DOCUMENT_PERIOD_MS,
    ),
  );
}

function Facts({ job }: { job: Job }): ComponentChildren {
  const now = Date.now();
  return (
    <p class="facts">
      submitted <When at={job.submitted} now={now} />
      {job.ended !== null && (
        <>
          , ended <When at={job.ended} now={now} />
        </>
      )}
      {job.restarts > 0 && `, ${counted(job.restarts, "restart")}`} · <code>{job.id}</code>
    </p>
  );
}

function Reason({ job }: { job: Job }): ComponentChildren {
  const failed = job.state === "failed";
  return (
    <Notice tone={failed ? "error" : "warning"} title={failed ? "This job has failed" : "This job waits"}>
      {job.reason}
    </Notice>
  );
}

/** Rates of a job that has not ended, totals of one that has. */
function Tiles(props: { figures: JobFigures; alive: boolean; graph: JobGraph }): ComponentChildren {
  const { figures, alive, graph } = props;
  const { records_in, rate_in, records_out, rate_out, errors, lag } = figures;
  const figure = (rate: number, total: number): { value: string; unit?: string } =>
    alive ? { value: short(rate), unit: "/s" } : { value: short(total) };
  return (
    <section class="tiles" aria-label="Figures of the job since the server has run it">
      <Tile label="Read" {...figure(rate_in, records_in)}>
        {counted(records_in, "record")} by all sources
      </Tile>
      <Tile label="Written" {...figure(rate_out, records_out)}>
        {counted(records_out, "record")} by all sinks
      </Tile>
      <Tile label="Lag" value={lag === null || !alive ? "–" : short(lag)}>
        {lagNote(lag, alive, graph)}
      </Tile>
      <Tile label="Errors" value={short(errors)}>
        {errors === 0 ? "no record has failed" : `${counted(errors, "error")} at all nodes`}
      </Tile>
    </section>
  );
}

function lagNote(lag: number | null, alive: boolean, graph: JobGraph): string {
  if (!alive) return "the job has ended";
  if (lag !== null) return "records not processed yet";
  return readsTopic(graph) ? "unknown until the job runs" : "the job reads no topic";
}

function Document({ document }: { document: Json | null }): ComponentChildren {
  return (
    <section class="card document" aria-label="Document">
      <h2>Document</h2>
      {document === null ? (
        <Notice tone="quiet" title="Loading the document…" />
      ) : (
        <pre tabIndex={0}>{JSON.stringify(document, null, 2)}</pre>
      )}
    </section>
  );
}
