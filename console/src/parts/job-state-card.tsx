/** What a job keeps over time: its last checkpoint, and the keys and the event time of its nodes. */
import type { ComponentChildren } from "preact";
import type { Job, JobGraph } from "../api/jobs";
import { bytes, latency, short } from "../format";
import { When } from "./subscription-table";

export function JobStateCard({ job, graph }: { job: Job; graph: JobGraph }): ComponentChildren {
  const { checkpoint, state_bytes } = job;
  const nodes = graph.nodes.filter(({ keys, watermark }) => keys !== null || watermark !== null);
  if (checkpoint === null && nodes.length === 0) return null;
  const now = Date.now();
  return (
    <section class="card cut-corners" aria-labelledby="job-state">
      <h2 id="job-state">State</h2>
      <p class="facts job-state">
        {checkpoint === null ? (
          "no checkpoint yet"
        ) : (
          <>
            checkpoint {checkpoint.epoch}, <When at={checkpoint.at} now={now} />, {bytes(checkpoint.bytes)}
            {checkpoint.took_ms !== null && ` in ${latency(checkpoint.took_ms)}`}
          </>
        )}
        {state_bytes !== null && ` · ${bytes(state_bytes)} in memory`}
      </p>
      {nodes.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="State of nodes">
          <table>
            <thead>
              <tr>
                <th scope="col">Node</th>
                <th scope="col" class="number">
                  Keys
                </th>
                <th scope="col" title="Nothing older than this is expected">
                  Event time
                </th>
              </tr>
            </thead>
            <tbody>
              {nodes.map(({ name, keys, watermark }) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td class="number">{keys === null ? <span class="absent">–</span> : short(keys)}</td>
                  <td>{watermark === null ? <span class="absent">–</span> : <When at={watermark} now={now} />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
