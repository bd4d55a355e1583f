/** The records on one edge of a job, as they pass. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { counted, whole } from "../format";
import { readingOrder } from "../live/session";
import type { TapSnapshot } from "../live/tap-session";
import { type Tap, useTap } from "../live/use-tap";
import { TAP_RATES } from "../pages/jobs-place";
import { LiveState, PauseButton } from "./live-state";
import { Notice, sentence } from "./notice";
import { RowsTable } from "./rows-table";

export function JobTap(props: {
  tenant: string;
  job: string;
  edge: { from: string; to: string };
  rate: number;
  onRate: (rate: number) => void;
  onClose: () => void;
}): ComponentChildren {
  const { tenant, job, edge, rate, onRate, onClose } = props;
  const tap = useTap(tenant, job, edge.from, edge.to, rate);
  const { snapshot } = tap;
  const rows = useMemo(() => readingOrder(snapshot.rows, false), [snapshot.rows]);
  return (
    <section class="card answer-rows" aria-label={`Records from ${edge.from} to ${edge.to}`}>
      <div class="card-tools">
        <h2>
          {edge.from} → {edge.to}
        </h2>
        <TapStatus snapshot={snapshot} />
        <span class="spring" />
        <PauseButton of={tap} />
        <label class="filter">
          <span>At most</span>
          <select
            value={rate}
            onChange={(event) => {
              onRate(Number(event.currentTarget.value));
            }}
          >
            {TAP_RATES.map((choice) => (
              <option key={choice} value={choice}>
                {choice} per second
              </option>
            ))}
          </select>
        </label>
        <button type="button" class="icon-button" aria-label="Close the tap" onClick={onClose}>
          ✕
        </button>
      </div>
      <TapNotice tap={tap} />
      {rows.length > 0 && (
        <RowsTable columns={snapshot.columns} rows={rows} received={snapshot.received} windows={false} />
      )}
    </section>
  );
}

function TapStatus({ snapshot }: { snapshot: TapSnapshot }): ComponentChildren {
  const { state, received, seen, dropped } = snapshot;
  const figures = `${counted(received, "record")} shown of ${whole(seen)} that passed${dropped > 0 ? `; ${whole(dropped)} samples dropped` : ""}`;
  return (
    <>
      <LiveState kind={state.kind} />
      {seen > 0 && (
        <span class="quiet">
          {figures}
          {state.kind === "paused" && state.missed > 0 && `; ${counted(state.missed, "record")} passed by meanwhile`}
        </span>
      )}
    </>
  );
}

function TapNotice({ tap }: { tap: Tap }): ComponentChildren {
  const { state, received } = tap.snapshot;
  switch (state.kind) {
    case "opening":
      return <Notice tone="quiet" title="Opening the tap…" />;
    case "live":
    case "paused":
      return received === 0 ? <Notice tone="quiet" title="Waiting for the first record on this edge" /> : null;
    case "ended":
      return (
        <Notice tone="quiet" title={`The job is ${state.reason}`}>
          {state.message === null ? "Nothing passes here any more." : sentence(state.message)}
        </Notice>
      );
    case "broken":
      return (
        <Notice tone="error" title="The tap is closed">
          {sentence(state.reason)}{" "}
          <button type="button" class="link" onClick={tap.again}>
            Open it again
          </button>
        </Notice>
      );
  }
}
