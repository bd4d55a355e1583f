/** Open alarms: which keys, since when, and how severe. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchAlarms, type OpenAlarm } from "../api/alarms";
import { counted } from "../format";
import { latest, usePolled } from "../live/remote";
import { jobsParams, type JobsPlace } from "../pages/jobs-place";
import { follow, href } from "../route";
import { Notice, RemoteNotice } from "./notice";
import { When } from "./subscription-table";
import { Name, textOf, Value } from "./value";

const PERIOD_MS = 2_000;

/** Those of one job, or of all jobs if `job` is null; the latter are left out while there are none. */
export function OpenAlarmsCard({ place, job }: { place: JobsPlace; job: string | null }): ComponentChildren {
  const { tenant } = place;
  const remote = usePolled(
    useCallback(() => fetchAlarms(tenant, job), [tenant, job]),
    PERIOD_MS,
  );
  const known = latest(remote);
  if (job === null && (known === null || known.open === 0)) return null;
  return (
    <section class="card cut-corners" aria-labelledby="open-alarms">
      <h2 id="open-alarms">
        Open alarms
        {known !== null && known.open > known.alarms.length && (
          <small>
            the first {known.alarms.length} of {counted(known.open, "alarm")}
          </small>
        )}
      </h2>
      <RemoteNotice remote={remote} what="alarms" />
      {known?.open === 0 && <Notice tone="quiet" title="No alarm is open" />}
      {known !== null && known.open > 0 && <AlarmTable alarms={known.alarms} place={place} names={job === null} />}
    </section>
  );
}

function AlarmTable(props: { alarms: readonly OpenAlarm[]; place: JobsPlace; names: boolean }): ComponentChildren {
  const { alarms, place, names } = props;
  const now = Date.now();
  return (
    <div class="scroll job-alarms" tabIndex={0} role="region" aria-label="Open alarms by key">
      <table>
        <thead>
          <tr>
            {names && <th scope="col">Job</th>}
            <th scope="col">Alarm</th>
            <th scope="col">Key</th>
            <th scope="col">State</th>
            <th scope="col">Since</th>
            <th scope="col">Severity</th>
            <th scope="col">Record</th>
          </tr>
        </thead>
        <tbody>
          {alarms.map((alarm) => (
            <tr key={`${alarm.job} ${alarm.node} ${textOf(alarm.key)}`}>
              {names && (
                <td>
                  <a href={href("jobs", jobsParams({ ...place, job: alarm.job }))} onClick={follow}>
                    <Name text={alarm.name} />
                  </a>
                </td>
              )}
              <td>{alarm.node}</td>
              <th scope="row">
                <Value value={alarm.key} />
              </th>
              <td>
                <span class={`state ${alarm.state === "raised" ? "error" : "warning"}`}>{alarm.state}</span>
              </td>
              <td>
                <When at={alarm.since} now={now} />
              </td>
              <td>{alarm.severity === null ? <span class="absent">–</span> : <Value value={alarm.severity} />}</td>
              <td class="cut" title={textOf(alarm.record)}>
                {alarm.record === null ? <span class="absent">–</span> : <code>{textOf(alarm.record)}</code>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
