/** A text that is being written, kept in the browser's tab until it is handed in. */
import { useCallback, useState } from "preact/hooks";

export interface DraftText {
  text: string;
  write: (text: string) => void;
  /** The text is not needed any more. */
  forget: () => void;
}

/** The text that is kept under `key`; null without one. */
export function keptText(key: string): string | null {
  return sessionStorage.getItem(key);
}

/** Begins with what is kept under `key`, else with `start`. An empty text is not kept. */
export function useDraftText(key: string, start: string): DraftText {
  const [text, setText] = useState(() => keptText(key) ?? start);
  const forget = useCallback(() => {
    sessionStorage.removeItem(key);
  }, [key]);
  const write = useCallback(
    (next: string): void => {
      setText(next);
      if (next === "" || next === start) forget();
      else keep(key, next);
    },
    [key, start, forget],
  );
  return { text, write, forget };
}

function keep(key: string, text: string): void {
  try {
    sessionStorage.setItem(key, text);
  } catch {
    // A text too large for the storage lives as long as the page.
  }
}
