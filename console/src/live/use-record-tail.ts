/** The tail of a page: open while the page shows it. Other sources close it and open the next one. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { RecordSession, TAIL_OPENING, type TailSnapshot, type TailSource } from "./record-session";

export interface RecordTail {
  snapshot: TailSnapshot;
  pause: () => void;
  resume: () => void;
  /** Opens the tail again after it broke. */
  again: () => void;
}

/** `sources` must stay the same for as long as the tail is to stay open; null: no tail. */
export function useRecordTail(sources: readonly TailSource[] | null): RecordTail {
  const [snapshot, setSnapshot] = useState<TailSnapshot>(TAIL_OPENING);
  const [attempt, setAttempt] = useState(0);
  const session = useRef<RecordSession | null>(null);
  useEffect(() => {
    setSnapshot(TAIL_OPENING);
    if (sources === null) return;
    const opened = new RecordSession(sources, setSnapshot);
    session.current = opened;
    void opened.run();
    return () => {
      opened.close();
    };
    // Another attempt is another tail.
  }, [sources, attempt]);
  return {
    snapshot,
    pause: useCallback(() => session.current?.pause(), []),
    resume: useCallback(() => session.current?.resume(), []),
    again: useCallback(() => {
      setAttempt((before) => before + 1);
    }, []),
  };
}
