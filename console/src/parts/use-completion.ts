/** The completion of the word at the caret: when it opens, what is chosen, what is taken. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { complete, type Completion, type Known, type Option } from "../query/completion";

export interface CompletionState {
  shown: Completion | null;
  /** Index into the options. */
  active: number;
  /** The text or the caret has changed by typing, or the user asks. */
  open: (text: string, caret: number, asked: boolean) => void;
  close: () => void;
  /** Whether the key was meant for the completion. */
  key: (event: KeyboardEvent) => boolean;
  take: (option: Option) => void;
}

export function useCompletion(
  field: { current: HTMLTextAreaElement | null },
  text: string,
  known: Known,
  onText: (text: string) => void,
): CompletionState {
  const [shown, setShown] = useState<Completion | null>(null);
  const [active, setActive] = useState(0);
  const caret = useRef<number | null>(null);
  // The caret goes where the user expects it once the new text is in the field.
  useLayoutEffect(() => {
    if (caret.current === null) return;
    field.current?.setSelectionRange(caret.current, caret.current);
    caret.current = null;
  }, [text, field]);

  const close = (): void => {
    setShown(null);
  };
  const open = (now: string, at: number, asked: boolean): void => {
    setShown(complete(now, at, known, asked));
    setActive(0);
  };
  const take = (option: Option): void => {
    if (shown === null) return;
    caret.current = shown.from + option.text.length;
    onText(text.slice(0, shown.from) + option.text + text.slice(shown.to));
    close();
  };
  const key = (event: KeyboardEvent): boolean => {
    if (event.key === " " && event.ctrlKey) {
      open(text, field.current?.selectionStart ?? text.length, true);
      return true;
    }
    if (shown === null) return false;
    const option = shown.options[active];
    switch (event.key) {
      case "ArrowDown":
      case "ArrowUp": {
        const step = event.key === "ArrowDown" ? 1 : -1;
        setActive((active + step + shown.options.length) % shown.options.length);
        return true;
      }
      case "Escape":
        close();
        return true;
      case "Enter":
      case "Tab":
        // A word that stands there as it is needs no taking: the key does what it always does.
        if (event.ctrlKey || event.metaKey || event.shiftKey || option === undefined) return false;
        if (option.text === text.slice(shown.from, shown.to)) return false;
        take(option);
        return true;
      case "ArrowLeft":
      case "ArrowRight":
      case "Home":
      case "End":
        close();
        return false;
      default:
        return false;
    }
  };
  return { shown, active, open, close, key, take };
}
