/** What the server says to a question that is asked once: again only if the question changes, or somebody wants it. */
import { useCallback, useEffect, useState } from "preact/hooks";
import { afterFailure, type Remote } from "./remote";

export interface Asked<T> {
  /** The last answer stays until the next one is there. */
  remote: Remote<T>;
  isAsking: boolean;
  again: () => void;
}

export function useAsked<T>(ask: (signal: AbortSignal) => Promise<T>): Asked<T> {
  const [remote, setRemote] = useState<Remote<T>>({ kind: "loading" });
  const [isAsking, setIsAsking] = useState(true);
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    const run = async (): Promise<void> => {
      setIsAsking(true);
      try {
        const value = await ask(abort.signal);
        if (!abort.signal.aborted) setRemote({ kind: "live", value, at: Date.now() });
      } catch (cause) {
        if (!abort.signal.aborted) setRemote(afterFailure<T>({ kind: "loading" }, cause));
      }
      if (!abort.signal.aborted) setIsAsking(false);
    };
    void run();
    return () => {
      abort.abort();
    };
    // Another attempt asks again.
  }, [ask, attempt]);
  const again = useCallback(() => {
    setAttempt((before) => before + 1);
  }, []);
  return { remote, isAsking, again };
}
