/** The tap of a page: open while the page shows it. Another edge or rate closes it and opens the next one. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { openTap } from "../api/tap";
import { TAP_OPENING, TapSession, type TapSnapshot } from "./tap-session";

export interface Tap {
  snapshot: TapSnapshot;
  pause: () => void;
  resume: () => void;
  /** Opens the tap again after it broke. */
  again: () => void;
}

export function useTap(tenant: string, job: string, from: string, to: string, rate: number): Tap {
  const [snapshot, setSnapshot] = useState<TapSnapshot>(TAP_OPENING);
  const [attempt, setAttempt] = useState(0);
  const session = useRef<TapSession | null>(null);
  useEffect(() => {
    const opened = new TapSession((signal) => openTap(tenant, job, { from, to }, rate, signal), setSnapshot);
    session.current = opened;
    void opened.run();
    return () => {
      opened.close();
    };
    // Another attempt is another tap.
  }, [tenant, job, from, to, rate, attempt]);
  return {
    snapshot,
    pause: useCallback(() => session.current?.pause(), []),
    resume: useCallback(() => session.current?.resume(), []),
    again: useCallback(() => {
      setAttempt((before) => before + 1);
    }, []),
  };
}
