/** The live query of a page: at most one at a time; a new one, another tenant, or leaving the page ends it. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { IDLE, QuerySession, serverOf, type Snapshot } from "./session";

export interface LiveQuery {
  snapshot: Snapshot;
  run: (text: string) => void;
  stop: () => void;
}

export function useSession(tenant: string): LiveQuery {
  const [snapshot, setSnapshot] = useState<Snapshot>(IDLE);
  const session = useRef<QuerySession | null>(null);
  const server = useMemo(() => serverOf(tenant), [tenant]);
  useEffect(
    () => () => {
      session.current?.close();
      session.current = null;
      setSnapshot(IDLE);
    },
    [server],
  );
  const run = useCallback(
    (text: string): void => {
      session.current?.close();
      const next = new QuerySession(server, text, setSnapshot);
      session.current = next;
      void next.run();
    },
    [server],
  );
  const stop = useCallback((): void => {
    session.current?.stop();
  }, []);
  return { snapshot, run, stop };
}
