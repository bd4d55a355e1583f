/** A text field whose text is the user's while it is being typed, and the owner's again once it is handed over. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function DraftInput(props: {
  value: string;
  /** A number, or a local time to the second; without it, any text. */
  type?: "number" | "datetime-local";
  /** The name, where no label around it has it. */
  label?: string;
  class?: string;
  placeholder?: string;
  /** The id of the list of suggestions. */
  list?: string;
  title?: string;
  /** The id of what says that the text is wrong. */
  error?: string | undefined;
  /** How long typing must pause before the text is handed over; without it, only Enter or leaving does. */
  settle_ms?: number;
  onCommit: (value: string) => void;
}): ComponentChildren {
  const { value, type, label, placeholder, list, title, error, settle_ms, onCommit } = props;
  const [draft, setDraft] = useState<string | null>(null);
  const timer = useRef(0);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );
  const commit = (text: string): void => {
    clearTimeout(timer.current);
    setDraft(null);
    if (text.trim() !== value) onCommit(text.trim());
  };
  return (
    <input
      type={type ?? "text"}
      min={type === "number" ? "0" : undefined}
      step={type === "datetime-local" ? "1" : undefined}
      class={props.class}
      aria-label={label}
      value={draft ?? value}
      placeholder={placeholder}
      list={list}
      title={title}
      aria-invalid={error === undefined ? undefined : "true"}
      aria-describedby={error}
      spellcheck={false}
      autocomplete="off"
      autocapitalize="off"
      onInput={(event) => {
        const text = event.currentTarget.value;
        setDraft(text);
        clearTimeout(timer.current);
        if (settle_ms !== undefined)
          timer.current = window.setTimeout(() => {
            commit(text);
          }, settle_ms);
      }}
      onChange={(event) => {
        commit(event.currentTarget.value);
      }}
    />
  );
}
