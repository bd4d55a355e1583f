/** The answer of a query: its rows, a chart of them, and what the server tells about them. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { readingOrder, type Row, type Snapshot } from "../live/session";
import { useNow } from "../live/use-now";
import { type Shape, shapeOf } from "../query/chart-choice";
import { download, fileText, type FileKind } from "../query/download";
import { figuresOf } from "../query/figures";
import { type ResultTiming, waitingText } from "../query/result-timing";
import { Figures } from "./figures";
import { Notice } from "./notice";
import { QueryFacts } from "./query-facts";
import { RowsChart } from "./rows-chart";
import { RowsTable } from "./rows-table";

/** Often enough for a countdown of seconds. */
const WAIT_PERIOD_MS = 250;

export function Answer(props: {
  tenant: string;
  snapshot: Snapshot;
  timing: ResultTiming;
  params: URLSearchParams;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { tenant, snapshot, timing, params, onChoose } = props;
  const { state, rows, columns, received } = snapshot;
  const shape = shapeOf(snapshot, rows);
  if (state.kind === "idle" || state.kind === "refused") return null;
  if (received === 0) {
    return (
      <>
        {state.kind === "ended" && <Notice tone="quiet" title="No record matched" />}
        {(state.kind === "live" || state.kind === "stopping") && (
          <WaitingForRows since_ms={state.since_ms} timing={timing} />
        )}
        <QueryFacts tenant={tenant} snapshot={snapshot} />
      </>
    );
  }
  // The one row of a query that has ended leaves nothing to compare.
  const hasChart = state.kind !== "ended" || shape === "windows" || figuresOf(columns, rows) === null;
  return (
    <div class="answer">
      <Rows key={snapshot.id} snapshot={snapshot} shape={shape} params={params} onChoose={onChoose} />
      <div class="answer-side">
        {hasChart && (
          <section class="card answer-chart" aria-label="Chart">
            <RowsChart columns={columns} rows={rows} shape={shape} params={params} onChoose={onChoose} />
          </section>
        )}
        <QueryFacts tenant={tenant} snapshot={snapshot} />
      </div>
    </div>
  );
}

function Rows(props: {
  snapshot: Snapshot;
  shape: Shape;
  params: URLSearchParams;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { snapshot, shape, params, onChoose } = props;
  const { rows, columns, window } = snapshot;
  const latestOnly = window !== null && params.get("rows") !== "all";
  const shown = useMemo(
    () => readingOrder(latestOnly ? rows.filter((row) => row.window === window.number) : rows, shape !== "rows"),
    [rows, latestOnly, window, shape],
  );
  const keep = (kind: FileKind): void => {
    // A file is read from its beginning: what came first stands first.
    download(kind, fileText(kind, columns, latestOnly ? shown : rows), new Date());
  };
  return (
    <section class="card answer-rows" aria-label="Answer">
      <div class="card-tools">
        <h2>Rows</h2>
        {window !== null && <WindowChoice latestOnly={latestOnly} onChoose={onChoose} />}
        <span class="spring" />
        <button
          type="button"
          onClick={() => {
            keep("json");
          }}
        >
          Download JSON
        </button>
        <button
          type="button"
          onClick={() => {
            keep("csv");
          }}
        >
          CSV
        </button>
      </div>
      <ShownRows snapshot={snapshot} shown={shown} isOneResult={latestOnly || snapshot.state.kind === "ended"} />
    </section>
  );
}

/** A single row that no other will join as large figures; else a table. */
function ShownRows(props: { snapshot: Snapshot; shown: readonly Row[]; isOneResult: boolean }): ComponentChildren {
  const { snapshot, shown, isOneResult } = props;
  const { columns, received, window } = snapshot;
  if (shown.length === 0) return <Notice tone="quiet" title="The latest window is empty" />;
  const figures = isOneResult ? figuresOf(columns, shown) : null;
  if (figures !== null) return <Figures figures={figures} />;
  return <RowsTable columns={columns} rows={shown} received={received} windows={window !== null} />;
}

function WindowChoice(props: {
  latestOnly: boolean;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { latestOnly, onChoose } = props;
  return (
    <div class="segments" role="group" aria-label="Windows shown">
      <button
        type="button"
        aria-pressed={latestOnly}
        onClick={() => {
          onChoose({ rows: "" });
        }}
      >
        Latest window
      </button>
      <button
        type="button"
        aria-pressed={!latestOnly}
        onClick={() => {
          onChoose({ rows: "all" });
        }}
      >
        All windows
      </button>
    </div>
  );
}

function WaitingForRows({ since_ms, timing }: { since_ms: number; timing: ResultTiming }): ComponentChildren {
  const now = useNow(WAIT_PERIOD_MS);
  return <Notice tone="quiet" title={waitingText(timing, now - since_ms)} />;
}
