/** What the server tells of an answer, in words: what was seen, how sure it is, what went wrong. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchProgress } from "../api/queries";
import type { Summary } from "../api/query-meta";
import { clock, duration, latency, whole } from "../format";
import { latest, usePolled } from "../live/remote";
import type { Snapshot } from "../live/session";
import { matchedText, oncePerReason, sketchText, troubles, windowText } from "../query/explain";
import { sentence } from "./notice";

const PERIOD_MS = 1_000;

export function QueryFacts({ tenant, snapshot }: { tenant: string; snapshot: Snapshot }): ComponentChildren {
  const { state } = snapshot;
  if (state.kind === "ended") return <Facts summary={state.summary} snapshot={snapshot} />;
  if (state.kind === "live" || state.kind === "stopping") {
    return <LiveFacts tenant={tenant} id={state.id} snapshot={snapshot} />;
  }
  return null;
}

function LiveFacts({ tenant, id, snapshot }: { tenant: string; id: string; snapshot: Snapshot }): ComponentChildren {
  const remote = usePolled(
    useCallback(() => fetchProgress(tenant, id), [tenant, id]),
    PERIOD_MS,
  );
  return <Facts summary={latest(remote)} snapshot={snapshot} />;
}

function Facts({ summary, snapshot: { window } }: { summary: Summary | null; snapshot: Snapshot }): ComponentChildren {
  const sketches = (window?.sketches ?? summary?.sketches ?? []).map(sketchText);
  const notes = window?.notes ?? summary?.notes ?? [];
  const regrets = oncePerReason([...notes, ...(summary === null ? [] : troubles(summary))]);
  if (summary === null && window === null) return null;
  return (
    <section class="card facts-card" aria-label="About this answer">
      <h2>About this answer</h2>
      <dl class="fact-list">
        {summary !== null && <SummaryFacts summary={summary} />}
        {window !== null && <Fact name="Latest result">{windowText(window)}</Fact>}
        {sketches.map(({ of, text }) => (
          <Fact key={of} name={of}>
            {text}
          </Fact>
        ))}
      </dl>
      {regrets.length > 0 && (
        <ul class="regrets">
          {regrets.map((text) => (
            <li key={text} class="warning">
              {sentence(text)}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function SummaryFacts({ summary }: { summary: Summary }): ComponentChildren {
  const { stream, received_ms, elapsed_us, records_seen } = summary;
  return (
    <>
      {stream !== "" && (
        <Fact name="Stream">
          <code>{stream}</code>
        </Fact>
      )}
      {received_ms !== null && elapsed_us !== null && (
        <Fact name="Listened">
          {elapsed_us < 1e6 ? latency(elapsed_us / 1000) : duration(elapsed_us / 1e6)}, from {clock(received_ms)}
        </Fact>
      )}
      <Fact name="Records seen">{whole(records_seen)}</Fact>
      <Fact name="Records matched">{matchedText(summary)}</Fact>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): ComponentChildren {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
