/** The completion of the word at the caret: when it opens, what is chosen, what is taken. */
import { useState } from "preact/hooks";
import type { Complete, Completion, Option } from "../completion";
import { applyEdit } from "./field-edit";

export interface CompletionState {
  shown: Completion | null;
  /** Index into the options. */
  active: number;
  /** The text or the caret has changed by typing, or the user asks. */
  open: (text: string, caret: number, asked: boolean) => void;
  close: () => void;
  /** True if the key was meant for the completion. */
  key: (event: KeyboardEvent) => boolean;
  take: (option: Option) => void;
}

export function useCompletion(
  field: { current: HTMLTextAreaElement | null },
  text: string,
  complete: Complete,
): CompletionState {
  const [shown, setShown] = useState<Completion | null>(null);
  const [active, setActive] = useState(0);

  const close = (): void => {
    setShown(null);
  };
  const open = (now: string, at: number, asked: boolean): void => {
    setShown(complete(now, at, asked));
    setActive(0);
  };
  const take = (option: Option): void => {
    const element = field.current;
    if (shown === null || element === null) return;
    const { from, to } = shown;
    const tail = text.startsWith(option.tail?.trimEnd() ?? "", to) ? "" : (option.tail ?? "");
    applyEdit(element, { from, to, text: option.text + tail });
    close();
    // Behind `key: ` stands a value, and perhaps the values are known, too.
    if (tail.endsWith(" ")) open(element.value, element.selectionStart, true);
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
