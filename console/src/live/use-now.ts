/** The time, for what counts up or down on the screen. */
import { useEffect, useState } from "preact/hooks";

/** Milliseconds since 1970, anew every `period_ms`. */
export function useNow(period_ms: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => {
      setNow(Date.now());
    }, period_ms);
    return () => {
      clearInterval(timer);
    };
  }, [period_ms]);
  return now;
}
