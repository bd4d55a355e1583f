/** A text field with coloured text behind it, and options below the caret. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { CompletionList, LIST_ID, optionId } from "./completion-list";
import type { CompletionState } from "./use-completion";

export function TextEditor(props: {
  label: string;
  text: string;
  field: { current: HTMLTextAreaElement | null };
  completion: CompletionState;
  isInvalid: boolean;
  /** The ids of what describes the field. */
  describedBy: string | undefined;
  onText: (text: string) => void;
  /** True if the key was meant for the editor; a key of the completion does not come here. */
  onKey: (event: KeyboardEvent) => boolean;
  /** The text in colours: exactly its characters, and a line break. */
  children: ComponentChildren;
}): ComponentChildren {
  const { label, text, field, completion, isInvalid, describedBy, onText, onKey, children } = props;
  const { shown, active } = completion;
  const behind = useRef<HTMLPreElement>(null);
  const place = usePlaceOf(behind, shown?.from ?? null);
  return (
    <div class="editor-field">
      <pre aria-hidden="true" ref={behind}>
        {children}
      </pre>
      <textarea
        ref={field}
        value={text}
        aria-label={label}
        aria-invalid={isInvalid}
        aria-describedby={describedBy}
        aria-autocomplete="list"
        aria-haspopup="listbox"
        aria-controls={shown === null ? undefined : LIST_ID}
        aria-activedescendant={shown === null ? undefined : optionId(active)}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        onInput={(event) => {
          const { value, selectionStart } = event.currentTarget;
          onText(value);
          completion.open(value, selectionStart, false);
        }}
        onBlur={completion.close}
        onClick={completion.close}
        onKeyDown={(event) => {
          if (completion.key(event) || onKey(event)) event.preventDefault();
        }}
      />
      {shown !== null && place !== null && (
        <CompletionList options={shown.options} active={active} {...place} onTake={completion.take} />
      )}
    </div>
  );
}

/** The place below the character at `index` of the coloured text: that of the options. */
function usePlaceOf(
  behind: { current: HTMLPreElement | null },
  index: number | null,
): { left: number; top: number } | null {
  const [place, setPlace] = useState<{ left: number; top: number } | null>(null);
  useLayoutEffect(() => {
    const element = behind.current;
    const at = element === null || index === null ? null : rectangleAt(element, index);
    if (element === null || at === null) {
      setPlace(null);
      return;
    }
    const frame = element.getBoundingClientRect();
    setPlace({ left: at.left - frame.left, top: at.bottom - frame.top + 4 });
  }, [behind, index]);
  return place;
}

function rectangleAt(element: HTMLElement, index: number): DOMRect | null {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let left = index;
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const length = node.textContent?.length ?? 0;
    if (left < length) {
      const range = document.createRange();
      range.setStart(node, left);
      range.setEnd(node, left + 1);
      return range.getClientRects()[0] ?? range.getBoundingClientRect();
    }
    left -= length;
  }
  return null;
}
