/** The queries of this tenant, from wherever they were asked: those that live, and kept ones that have ended. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import { kill, listRunning, type Running } from "../api/queries";
import { counted } from "../format";
import { latest, usePolled } from "../live/remote";
import { Notice } from "./notice";

const PERIOD_MS = 2_000;

export function RunningQueries({ tenant, own }: { tenant: string; own: string | null }): ComponentChildren {
  const remote = usePolled(
    useCallback(() => listRunning(tenant), [tenant]),
    PERIOD_MS,
  );
  const [failure, setFailure] = useState<string | null>(null);
  const end = async (id: string): Promise<void> => {
    try {
      await kill(tenant, id);
      setFailure(null);
    } catch (cause) {
      setFailure(cause instanceof Error ? cause.message : String(cause));
    }
  };
  const others = (latest(remote) ?? []).filter(({ id }) => id !== own);
  const live = others.filter(({ cause }) => cause === null);
  const ended = others.filter(({ cause }) => cause !== null);
  if (others.length === 0) return null;
  return (
    <>
      {failure !== null && (
        <Notice tone="error" title="The query could not be stopped">
          {failure}
        </Notice>
      )}
      {live.length > 0 && (
        <section class="card" aria-label="Other live queries">
          <h2>{counted(live.length, "other live query", "other live queries")}</h2>
          <QueryList queries={live} action="Stop" onAction={end} />
        </section>
      )}
      {ended.length > 0 && (
        <section class="card" aria-label="Kept queries that have ended">
          <h2>{counted(ended.length, "kept query has ended", "kept queries have ended")}</h2>
          <p>Each result waits for its reader. Forgetting a query drops it.</p>
          <QueryList queries={ended} action="Forget" onAction={end} />
        </section>
      )}
    </>
  );
}

function QueryList({
  queries,
  action,
  onAction,
}: {
  queries: readonly Running[];
  action: string;
  onAction: (id: string) => Promise<void>;
}): ComponentChildren {
  return (
    <ul class="running">
      {queries.map(({ id, text }) => (
        <li key={id}>
          <code title={id}>{text}</code>
          <button type="button" onClick={() => void onAction(id)}>
            {action}
          </button>
        </li>
      ))}
    </ul>
  );
}
