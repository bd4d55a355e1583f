/** What an attribute was: numbers as a line, other values as a list of changes. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import type { Whose } from "../api/history";
import { moment, stepped } from "../format";
import {
  type AttributeHistory as History,
  changesOf,
  fetchHistory,
  linesOfHistory,
  type SpanName,
  spanOf,
  SPANS,
} from "../live/attribute-history";
import { latest, usePolled } from "../live/remote";
import { Chart } from "./chart";
import { Notice, RemoteNotice } from "./notice";
import { Value } from "./value";

const HEIGHT_PX = 170;
const PERIOD_MS = 2_000;
/** Figures of long spans cost more to compute, and change less. */
const LONG_PERIOD_MS = 15_000;

export function AttributeHistory(props: {
  whose: Whose;
  isNumber: boolean;
  span: SpanName;
  onSpan: (span: SpanName) => void;
}): ComponentChildren {
  const { whose, isNumber, span, onSpan } = props;
  const { tenant, id, type, attribute } = whose;
  const remote = usePolled(
    useCallback(
      () => fetchHistory({ tenant, id, type, attribute }, span, isNumber, Date.now()),
      [tenant, id, type, attribute, span, isNumber],
    ),
    SPANS[span].span_ms === null ? PERIOD_MS : LONG_PERIOD_MS,
  );
  const history = latest(remote);
  const panel = useRef<HTMLDivElement>(null);
  // What has just been opened may lie below the edge.
  useEffect(() => {
    panel.current?.scrollIntoView({ block: "nearest" });
  }, []);
  return (
    <div class="history" ref={panel} role="group" aria-label={`History of ${attribute}`}>
      <label class="history-span">
        <span>History</span>
        <select
          value={span}
          onChange={(event) => {
            onSpan(spanOf(event.currentTarget.value));
          }}
        >
          {Object.entries(SPANS).map(([name, { label }]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <RemoteNotice remote={remote} what="the history" />
      {history !== null && <Shown attribute={attribute} history={history} />}
    </div>
  );
}

function Shown({ attribute, history }: { attribute: string; history: History }): ComponentChildren {
  const lines = useMemo(() => linesOfHistory(attribute, history), [attribute, history]);
  if ((history.kind === "points" ? history.points : history.periods).length === 0) {
    return <Notice tone="quiet" title="No value is known of this time" />;
  }
  if (lines !== null) {
    return (
      <Chart
        title={history.kind === "points" ? "Values" : "Mean, least and greatest"}
        times_s={lines.times_s}
        series={lines.lines}
        format={stepped}
        fromZero={false}
        height={HEIGHT_PX}
      />
    );
  }
  return history.kind === "points" ? <Changes history={history} /> : null;
}

function Changes({ history }: { history: Extract<History, { kind: "points" }> }): ComponentChildren {
  const changes = useMemo(() => changesOf(history.points), [history]);
  return (
    <ol class="changes" aria-label="Changes, newest first" tabIndex={0}>
      {changes.map(({ value, from_ms, count }) => (
        <li key={from_ms}>
          <time dateTime={new Date(from_ms).toISOString()}>{moment(from_ms)}</time>
          <span>
            <Value value={value} />
          </span>
          {count > 1 && <small>{count} times</small>}
        </li>
      ))}
    </ol>
  );
}
