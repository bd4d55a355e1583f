/** The ways to resume and to end a job, each with a question first. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Job, killJob, resumeJob, stopJob } from "../api/jobs";
import { ConfirmButton } from "./confirm";

export function JobActions(props: { tenant: string; job: Job; onDone: () => void }): ComponentChildren {
  const { tenant, job, onDone } = props;
  const [stopping, setStopping] = useState(false);
  return (
    <div class="job-actions">
      {stopping && (
        <span class="quiet" role="status">
          Stopping: what was read is being finished
        </span>
      )}
      {job.state === "paused" && (
        <ConfirmButton
          role="writer"
          label="Resume"
          title={`Resume ${job.name}?`}
          tone="plain"
          act={() => resumeJob(tenant, job.id)}
          onDone={onDone}
        >
          It goes on where it was. If it brings the server down again, the server is down for everybody until it is
          back.
        </ConfirmButton>
      )}
      <ConfirmButton
        role="writer"
        label="Stop"
        title={`Stop ${job.name}?`}
        tone="plain"
        act={() => stopJob(tenant, job.id)}
        onDone={() => {
          setStopping(true);
          onDone();
        }}
      >
        What it has read is finished first. A job of the same name, submitted later, goes on where this one stops.
      </ConfirmButton>
      <ConfirmButton
        role="writer"
        label="Kill"
        title={`Kill ${job.name}?`}
        tone="stop"
        act={() => killJob(tenant, job.id)}
        onDone={onDone}
      >
        It ends at once, and what is in flight is dropped. The same document under this id never runs again.
      </ConfirmButton>
    </div>
  );
}
