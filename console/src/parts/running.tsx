/** The queries the server is answering for this tenant, from wherever they were asked. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import { kill, listRunning } from "../api/queries";
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
  if (others.length === 0) return null;
  return (
    <section class="card" aria-label="Other live queries">
      <h2>{counted(others.length, "other live query", "other live queries")}</h2>
      {failure !== null && (
        <Notice tone="error" title="The query could not be stopped">
          {failure}
        </Notice>
      )}
      <ul class="running">
        {others.map(({ id, text }) => (
          <li key={id}>
            <code title={id}>{text}</code>
            <button type="button" onClick={() => void end(id)}>
              Stop
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
