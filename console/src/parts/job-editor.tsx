/** The editor of a job's document: YAML in colours, with numbers of lines, and steps of two spaces. */
import type { ComponentChildren } from "preact";
import { useId, useMemo, useRef } from "preact/hooks";
import type { Complete } from "../completion";
import { colouredLines } from "../job-document/colours";
import { indented, newLine, outdented } from "../job-document/edits";
import { indexOf } from "../job-document/places";
import { applyEdit } from "./field-edit";
import { TextEditor } from "./text-editor";
import { useCompletion } from "./use-completion";

export function JobEditor(props: {
  text: string;
  field: { current: HTMLTextAreaElement | null };
  /** Numbers of lines with faults, from 1. */
  faulty: ReadonlySet<number>;
  complete: Complete;
  onText: (text: string) => void;
}): ComponentChildren {
  const { text, field, faulty, complete, onText } = props;
  const completion = useCompletion(field, text, complete);
  const onKey = useIndentation(field);
  const lines = useMemo(() => colouredLines(text), [text]);
  const hint = useId();
  return (
    <div class="job-editor">
      <TextEditor
        label="Document"
        text={text}
        field={field}
        completion={completion}
        isInvalid={faulty.size > 0}
        describedBy={hint}
        onText={onText}
        onKey={onKey}
      >
        {lines.map((words, index) => (
          <span key={index} class={faulty.has(index + 1) ? "line faulty" : "line"}>
            {words.map((word, place) => (
              <span key={place} class={word.kind}>
                {word.text}
              </span>
            ))}
            {"\n"}
          </span>
        ))}
      </TextEditor>
      <p class="editor-hint" id={hint}>
        <kbd>Ctrl</kbd> <kbd>Space</kbd> completes, <kbd>Tab</kbd> indents; <kbd>Esc</kbd>, then <kbd>Tab</kbd> leaves
        the editor
      </p>
    </div>
  );
}

/** Puts the caret into a line and brings it onto the screen. */
export function goTo(field: HTMLTextAreaElement, line: number, column: number): void {
  const at = indexOf(field.value, line, column);
  field.focus({ preventScroll: true });
  field.setSelectionRange(at, at);
  field.parentElement?.querySelectorAll(".line")[line - 1]?.scrollIntoView({ block: "nearest" });
}

/** The keys for the indentation. Tab after Escape moves the focus, so that nobody is caught in the field. */
function useIndentation(field: { current: HTMLTextAreaElement | null }): (event: KeyboardEvent) => boolean {
  const leaves = useRef(false);
  return (event) => {
    const element = field.current;
    if (element === null || event.isComposing) return false;
    if (event.key === "Shift") return false;
    const isLeaving = leaves.current;
    leaves.current = event.key === "Escape";
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const { value, selectionStart: from, selectionEnd: to } = element;
    if (event.key === "Tab" && !isLeaving) {
      applyEdit(element, event.shiftKey ? outdented(value, from, to) : indented(value, from, to));
      return true;
    }
    if (event.key !== "Enter" || event.shiftKey) return false;
    applyEdit(element, newLine(value, from, to));
    return true;
  };
}
