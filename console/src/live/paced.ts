/** A value that changes often, seen at a calmer pace by something that is costly to draw. */
import { useEffect, useRef, useState } from "preact/hooks";

/** The value as it was at most `period_ms` ago; when it rests, the value itself. */
export function usePaced<T>(value: T, period_ms: number): T {
  const [shown, setShown] = useState(value);
  const newest = useRef(value);
  const timer = useRef(0);
  useEffect(() => {
    newest.current = value;
    if (timer.current !== 0) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      setShown(newest.current);
    }, period_ms);
  }, [value, period_ms]);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );
  return shown;
}
