/** What a job keeps over time: its last checkpoints, the keys and the event time of its nodes, and the keys of one node. */
import type { ComponentChildren } from "preact";
import type { Checkpoint, Checkpoints, Job, JobGraph } from "../api/jobs";
import { bytes, latency, short } from "../format";
import type { JobsMover, JobsPlace } from "../pages/jobs-place";
import { JobKeys } from "./job-keys";
import { When } from "./subscription-table";

export function JobStateCard(props: {
  job: Job;
  graph: JobGraph;
  /** Null while they are not known. */
  stored: Checkpoints | null;
  place: JobsPlace;
  onMove: JobsMover;
}): ComponentChildren {
  const { job, graph, stored, place, onMove } = props;
  const withState = stored?.nodes ?? [];
  const nodes = graph.nodes.filter(
    ({ name, keys, watermark }) => keys !== null || watermark !== null || withState.includes(name),
  );
  const checkpoints = stored?.checkpoints ?? [];
  const last = job.checkpoint ?? checkpoints[0] ?? null;
  if (last === null && nodes.length === 0) return null;
  const now = Date.now();
  const shown = place.keys === null || !withState.includes(place.keys.node) ? null : place.keys;
  return (
    <>
      <div class="job-state-parts">
        <section class="card cut-corners" aria-labelledby="job-state">
          <h2 id="job-state">State</h2>
          <p class="facts job-state">
            {last === null ? (
              "no checkpoint yet"
            ) : (
              <>
                checkpoint {last.epoch}, <When at={last.at} now={now} />
                {last.bytes !== null && `, ${bytes(last.bytes)}`}
                {last.took_ms !== null && ` in ${latency(last.took_ms)}`}
              </>
            )}
            {job.state_bytes !== null && ` · ${bytes(job.state_bytes)} in memory`}
          </p>
          {nodes.length > 0 && (
            <NodeTable
              nodes={nodes}
              withState={last === null ? [] : withState}
              shown={shown?.node ?? null}
              onShow={(node) => {
                onMove({ keys: node === null ? null : { node, key: "" } }, "amend");
              }}
            />
          )}
        </section>
        {checkpoints.length > 0 && <CheckpointTable checkpoints={checkpoints} isAlive={job.ended === null} />}
      </div>
      {shown !== null && last !== null && (
        <JobKeys
          key={shown.node}
          tenant={place.tenant}
          job={job.id}
          node={shown.node}
          only={shown.key}
          onOnly={(key) => {
            onMove({ keys: { node: shown.node, key } }, "amend");
          }}
          onClose={() => {
            onMove({ keys: null }, "amend");
          }}
        />
      )}
    </>
  );
}

function NodeTable(props: {
  nodes: JobGraph["nodes"];
  withState: readonly string[];
  /** The node whose keys are on the screen. */
  shown: string | null;
  onShow: (node: string | null) => void;
}): ComponentChildren {
  const { nodes, withState, shown, onShow } = props;
  const now = Date.now();
  return (
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
              <th scope="row">
                {withState.includes(name) ? (
                  <button
                    type="button"
                    class="link"
                    aria-label={`Keys of ${name}`}
                    aria-pressed={name === shown}
                    title={name === shown ? "Hide its keys" : "Show its keys"}
                    onClick={() => {
                      onShow(name === shown ? null : name);
                    }}
                  >
                    {name}
                  </button>
                ) : (
                  name
                )}
              </th>
              <td class="number">{keys === null ? <span class="absent">–</span> : short(keys)}</td>
              <td>{watermark === null ? <span class="absent">–</span> : <When at={watermark} now={now} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CheckpointTable(props: { checkpoints: readonly Checkpoint[]; isAlive: boolean }): ComponentChildren {
  const { checkpoints, isAlive } = props;
  const now = Date.now();
  return (
    <section class="card cut-corners" aria-labelledby="job-checkpoints">
      <h2 id="job-checkpoints">Checkpoints</h2>
      {!isAlive && <p class="facts job-state">the last one is kept; “Edit and resume” goes on from it</p>}
      <div class="scroll job-checkpoints" tabIndex={0} role="region" aria-label="Checkpoints, newest first">
        <table>
          <thead>
            <tr>
              <th scope="col">Epoch</th>
              <th scope="col">When</th>
              <th scope="col" class="number">
                Size
              </th>
              <th scope="col" class="number">
                Took
              </th>
            </tr>
          </thead>
          <tbody>
            {checkpoints.map(({ epoch, at, bytes: size, took_ms }) => (
              <tr key={epoch}>
                <th scope="row">{epoch}</th>
                <td>
                  <When at={at} now={now} />
                </td>
                <td class="number">{size === null ? <span class="absent">–</span> : bytes(size)}</td>
                <td class="number">{took_ms === null ? <span class="absent">–</span> : latency(took_ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
