/** The live query of a page: at most one at a time; a new one, another tenant, or leaving the page ends it. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { RangeRequest } from "../query/range";
import { IDLE, QuerySession, serverOf, type Snapshot } from "./session";

export interface LiveQuery {
  snapshot: Snapshot;
  run: (text: string, range: RangeRequest) => void;
  stop: () => void;
}

export function useSession(tenant: string): LiveQuery {
  const [snapshot, setSnapshot] = useState<Snapshot>(IDLE);
  const session = useRef<QuerySession | null>(null);
  useEffect(
    () => () => {
      session.current?.close();
      session.current = null;
      setSnapshot(IDLE);
    },
    [tenant],
  );
  const run = useCallback(
    (text: string, range: RangeRequest): void => {
      session.current?.close();
      const next = new QuerySession(serverOf(tenant, range), text, setSnapshot);
      session.current = next;
      void next.run();
    },
    [tenant],
  );
  const stop = useCallback((): void => {
    session.current?.stop();
  }, []);
  return { snapshot, run, stop };
}
