/** One line on the state of a query: is it live, what has it seen, how did it end. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Summary } from "../api/queries";
import { duration, whole } from "../format";
import type { QueryState, Snapshot } from "../live/session";
import { Notice, sentence } from "./notice";

const CAUSES: Readonly<Record<string, string>> = {
  duration: "its time was over",
  size: "it had all the rows it asked for",
  killed: "it was stopped",
  limit: "it broke a limit",
  error: "of an error",
  disconnected: "the connection was lost",
  shutdown: "the server shut down",
};

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
          <b>{whole(received)}</b> rows
          {state.kind !== "asking" && <Elapsed since_ms={state.since_ms} />}
        </p>
      );
    case "ended":
      return (
        <p class="query-status" role="status">
          <span class="state quiet">Ended</span>
          <b>{whole(received)}</b> rows
          {state.summary !== null && <SummaryFacts summary={state.summary} />}
        </p>
      );
  }
}

const LABELS: Record<Extract<QueryState["kind"], "asking" | "live" | "stopping">, string> = {
  asking: "Asking",
  live: "Live",
  stopping: "Stopping",
};

function SummaryFacts({ summary }: { summary: Summary }): ComponentChildren {
  const { cause, records_seen, matched, dropped, evaluation_errors, not_json, skipped, clamped, errors } = summary;
  return (
    <>
      <span>because {CAUSES[cause] ?? cause}</span>
      <span>
        <b>{whole(records_seen)}</b> records seen
      </span>
      <span>
        <b>{whole(matched)}</b> matched
      </span>
      {dropped > 0 && (
        <span class="warning">
          <b>{whole(dropped)}</b> rows dropped by the server: this page was too slow
        </span>
      )}
      {evaluation_errors > 0 && (
        <span class="warning">
          <b>{whole(evaluation_errors)}</b> evaluation errors
        </span>
      )}
      {not_json > 0 && (
        <span>
          <b>{whole(not_json)}</b> records were not JSON
        </span>
      )}
      {skipped > 0 && (
        <span class="warning">
          <b>{whole(skipped)}</b> offsets were gone before they could be read
        </span>
      )}
      {clamped.map(({ setting, given }) => (
        <span key={setting} class="warning">
          <code>{setting}</code> allows only {whole(given)}
        </span>
      ))}
      {errors.map(({ error, resolution }) => (
        <span key={error} class="warning">
          {sentence(error)} {sentence(resolution)}
        </span>
      ))}
    </>
  );
}

function Elapsed({ since_ms }: { since_ms: number }): ComponentChildren {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => {
      setNow(Date.now());
    }, 1_000);
    return () => {
      clearInterval(timer);
    };
  }, []);
  return <span>for {duration((now - since_ms) / 1000)}</span>;
}
