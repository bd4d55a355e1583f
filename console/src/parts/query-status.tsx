/** One line on the state of a query: is it live, how many rows has it brought, how did it end. */
import type { ComponentChildren } from "preact";
import { counted, duration, whole } from "../format";
import { type QueryState, ROWS_MAX, type Snapshot } from "../live/session";
import { useNow } from "../live/use-now";
import { causeText } from "../query/explain";
import { Notice, sentence } from "./notice";

export function QueryStatus({ snapshot }: { snapshot: Snapshot }): ComponentChildren {
  const { state, received } = snapshot;
  switch (state.kind) {
    case "idle":
      return null;
    case "refused":
      // Findings say it better, under the place they mean.
      return state.findings.length > 0 ? null : (
        <Notice tone="error" title="The server refused this query">
          {sentence(state.reason)}
        </Notice>
      );
    case "broken":
      return (
        <Notice tone="error" title="The query broke off">
          {sentence(state.reason)}
        </Notice>
      );
    case "asking":
    case "live":
    case "stopping":
      return (
        <p class="query-status" role="status">
          <span class={`state ${state.kind === "live" ? "good" : "quiet"}`}>{LABELS[state.kind]}</span>
          <Rows count={received} />
          {state.kind !== "asking" && <Elapsed since_ms={state.since_ms} />}
          <LetGo snapshot={snapshot} />
        </p>
      );
    case "ended": {
      const cause = state.summary?.cause ?? null;
      return (
        <p class="query-status" role="status">
          <span class="state quiet">Ended</span>
          <Rows count={received} />
          {cause !== null && <span>because {causeText(cause)}</span>}
          <LetGo snapshot={snapshot} />
        </p>
      );
    }
  }
}

const LABELS: Record<Extract<QueryState["kind"], "asking" | "live" | "stopping">, string> = {
  asking: "Asking",
  live: "Live",
  stopping: "Stopping",
};

function Rows({ count }: { count: number }): ComponentChildren {
  return (
    <span>
      <b>{whole(count)}</b> {count === 1 ? "row" : "rows"}
    </span>
  );
}

function LetGo({ snapshot: { received, dropped } }: { snapshot: Snapshot }): ComponentChildren {
  if (dropped === 0) return null;
  return (
    <span class="warning">
      Showing the newest {whole(ROWS_MAX)} of {counted(received, "row")}; {whole(dropped)} older ones were let go.
    </span>
  );
}

function Elapsed({ since_ms }: { since_ms: number }): ComponentChildren {
  const now = useNow(1_000);
  return <span>for {duration((now - since_ms) / 1000)}</span>;
}
