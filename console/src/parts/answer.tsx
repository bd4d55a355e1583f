/** The answer of a query: its rows, a chart of them, and what the server tells about them. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { readingOrder, type QueryState, type Snapshot } from "../live/session";
import { type Shape, shapeOf } from "../query/chart-choice";
import { download, fileText, type FileKind } from "../query/download";
import { Notice } from "./notice";
import { QueryFacts } from "./query-facts";
import { RowsChart } from "./rows-chart";
import { RowsTable } from "./rows-table";

export function Answer(props: {
  tenant: string;
  snapshot: Snapshot;
  params: URLSearchParams;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { tenant, snapshot, params, onChoose } = props;
  const { state, rows, columns, received } = snapshot;
  const shape = shapeOf(snapshot, rows);
  if (state.kind === "idle" || state.kind === "refused") return null;
  if (received === 0) {
    return (
      <>
        <NoRows state={state} />
        <QueryFacts tenant={tenant} snapshot={snapshot} />
      </>
    );
  }
  return (
    <div class="answer">
      <Rows key={snapshot.id} snapshot={snapshot} shape={shape} params={params} onChoose={onChoose} />
      <div class="answer-side">
        <section class="card answer-chart" aria-label="Chart">
          <RowsChart columns={columns} rows={rows} shape={shape} params={params} onChoose={onChoose} />
        </section>
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
  const { rows, columns, received, window } = snapshot;
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
      {shown.length === 0 ? (
        <Notice tone="quiet" title="The latest window is empty" />
      ) : (
        <RowsTable columns={columns} rows={shown} received={received} windows={window !== null} />
      )}
    </section>
  );
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

function NoRows({ state }: { state: QueryState }): ComponentChildren {
  if (state.kind === "ended") return <Notice tone="quiet" title="No record matched" />;
  // Not while the server has yet to take the query: what arrives until then is not part of the answer.
  if (state.kind !== "live" && state.kind !== "stopping") return null;
  return <Notice tone="quiet" title="Waiting for the first record that matches…" />;
}
