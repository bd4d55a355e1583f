/** The latest errors of a job, newest first. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchErrors, type JobError } from "../api/jobs";
import { latest, usePolled } from "../live/remote";
import { Notice, RemoteNotice } from "./notice";
import { When } from "./subscription-table";

const PERIOD_MS = 2_000;

export function JobErrors({ tenant, id }: { tenant: string; id: string }): ComponentChildren {
  const remote = usePolled(
    useCallback(() => fetchErrors(tenant, id), [tenant, id]),
    PERIOD_MS,
  );
  const errors = latest(remote);
  return (
    <section class="card cut-corners" aria-labelledby="job-errors">
      <h2 id="job-errors">Errors</h2>
      <RemoteNotice remote={remote} what="errors" />
      {errors !== null && errors.length === 0 && (
        <Notice tone="quiet" title="No errors">
          Errors that an error route takes are not listed here: they are counted at their node and go where the route
          leads.
        </Notice>
      )}
      {errors !== null && errors.length > 0 && <ErrorTable errors={errors.toReversed()} />}
    </section>
  );
}

function ErrorTable({ errors }: { errors: readonly JobError[] }): ComponentChildren {
  const now = Date.now();
  return (
    <div class="scroll job-errors" tabIndex={0} role="region" aria-label="Errors, newest first">
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Node</th>
            <th scope="col">Code</th>
            <th scope="col">Error</th>
            <th scope="col">Record</th>
          </tr>
        </thead>
        <tbody>
          {errors.map((error, index) => (
            <tr key={`${error.at} ${errors.length - index}`}>
              <td>
                <When at={error.at} now={now} />
              </td>
              <td title={`instance ${error.instance}, stage ${error.stage}`}>{error.node}</td>
              <td>
                <code>{error.code}</code>
              </td>
              <td class="wrap">{error.message}</td>
              <td>{error.record ?? <span class="absent">–</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
