/** The box of a node: its name, its type and its live figures. */
import type { ComponentChildren } from "preact";
import type { GraphNode, NodeFigures } from "../api/jobs";
import { counted, latency, short, whole } from "../format";

/** From here on a queue holds its sender back often. */
const QUEUE_IS_FULL = 0.8;

export function JobNodeBox(props: {
  node: GraphNode;
  /** The job has not ended: rates are shown, not totals. */
  alive: boolean;
  style: Readonly<Record<string, string>>;
}): ComponentChildren {
  const { node, alive, style } = props;
  const { name, type, role, doc, instances, waits, figures } = node;
  return (
    <div
      class={`node ${role} ${waits === null ? "" : "warning"}`}
      style={style}
      role="group"
      aria-label={`${role} ${name}`}
      title={doc ?? undefined}
    >
      <div class="node-head">
        <b title={name}>{name}</b>
        <span class="quiet">
          {type}
          {instances > 1 && ` ×${instances}`}
        </span>
      </div>
      {waits !== null && (
        <p class="node-waits" title={waits}>
          {waits}
        </p>
      )}
      {waits === null && figures !== null && <Figures figures={figures} role={role} alive={alive} />}
    </div>
  );
}

function Figures(props: { figures: NodeFigures; role: GraphNode["role"]; alive: boolean }): ComponentChildren {
  const { figures, role, alive } = props;
  const { rate_in, rate_out, records_in, records_out, latency_ms, queue, lag, errors, unrouted } = figures;
  const flow = (rate: number, total: number): string => (alive ? `${short(rate)}/s` : short(total));
  return (
    <>
      <dl class="node-figures">
        <Pair name={role === "source" ? "read" : "in"} title={counted(records_in, "record")}>
          {flow(rate_in, records_in)}
        </Pair>
        <Pair name={role === "sink" ? "written" : "out"} title={counted(records_out, "record")}>
          {flow(rate_out, records_out)}
        </Pair>
        <Pair name="p50" title="Time of the node for a batch, median">
          {orDash(latency_ms.p50)}
        </Pair>
        <Pair name="p99" title="Time of the node for a batch, 99 of 100 are faster">
          {orDash(latency_ms.p99)}
        </Pair>
        {lag !== null && (
          <Pair name="lag" title="Records of the topic that are not processed yet">
            {short(lag)}
          </Pair>
        )}
        {queue !== null && <Queue queue={queue} />}
      </dl>
      {(errors > 0 || unrouted > 0) && (
        <p class="node-faults">
          {errors > 0 && (
            <span class="error" title={byCode(figures)}>
              {short(errors)} {errors === 1 ? "error" : "errors"}
            </span>
          )}
          {unrouted > 0 && (
            <span title={`${counted(unrouted, "record")} that no route took`}>{short(unrouted)} unrouted</span>
          )}
        </p>
      )}
    </>
  );
}

function Pair({
  name,
  title,
  children,
}: {
  name: string;
  title: string;
  children: ComponentChildren;
}): ComponentChildren {
  return (
    <div title={title}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Queue({ queue: { used, bound } }: { queue: { used: number; bound: number } }): ComponentChildren {
  const share = bound > 0 ? Math.min(1, used / bound) : 0;
  return (
    <div class="node-queue" title={`${counted(used, "batch", "batches")} of ${whole(bound)} wait for this node`}>
      <dt>queue</dt>
      <dd>
        <span class={share >= QUEUE_IS_FULL ? "meter full" : "meter"} aria-hidden="true">
          <i style={{ width: `${100 * share}%` }} />
        </span>
        {whole(used)}/{whole(bound)}
      </dd>
    </div>
  );
}

function byCode({ errors_by_code }: NodeFigures): string {
  return [...errors_by_code].map(([code, count]) => `${code}: ${whole(count)}`).join(", ");
}

function orDash(value_ms: number | null): string {
  return value_ms === null ? "–" : latency(value_ms);
}
