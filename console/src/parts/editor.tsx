/** Where a query is written: a text field with coloured words behind it, options below the caret, findings below. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Finding } from "../api/http";
import type { Known } from "../query/completion";
import { rangeOf, type Token, tokens, withSuggestion } from "../query/text";
import { CompletionList, LIST_ID, optionId } from "./completion-list";
import { FindingLine } from "./finding-line";
import { useCompletion } from "./use-completion";

export function Editor(props: {
  text: string;
  /** Of exactly this text. */
  findings: readonly Finding[];
  known: Known;
  onText: (text: string) => void;
  onRun: () => void;
}): ComponentChildren {
  const { text, findings, known, onText, onRun } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const behind = useRef<HTMLPreElement>(null);
  const completion = useCompletion(field, text, known, onText);
  const { shown, active } = completion;
  // Where a word is being completed, nobody wants to hear yet that it is wrong.
  const told = shown === null ? findings : [];
  const place = usePlaceOf(behind, shown?.from ?? null);
  const goTo = (finding: Finding): void => {
    const { start, end } = rangeOf(text, finding);
    field.current?.focus();
    field.current?.setSelectionRange(start, end);
  };
  return (
    <div class="editor">
      <div class="editor-field">
        <pre aria-hidden="true" ref={behind}>
          {tokens(text, told).map((token, index) => (
            <span key={index} class={marked(token, told)}>
              {token.text}
            </span>
          ))}
          {"\n"}
        </pre>
        <textarea
          ref={field}
          value={text}
          aria-label="Query"
          aria-invalid={told.some(({ kind }) => kind === "error")}
          aria-describedby={told.length > 0 ? "findings" : undefined}
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
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
              event.preventDefault();
              completion.close();
              onRun();
            } else if (completion.key(event)) event.preventDefault();
          }}
        />
        {shown !== null && place !== null && (
          <CompletionList options={shown.options} active={active} {...place} onTake={completion.take} />
        )}
      </div>
      {told.length > 0 && (
        <ul class="findings" id="findings">
          {told.map((finding, index) => (
            <FindingLine
              key={index}
              text={text}
              finding={finding}
              onGo={() => {
                goTo(finding);
              }}
              onTake={() => {
                onText(withSuggestion(text, finding));
                field.current?.focus();
              }}
            />
          ))}
        </ul>
      )}
    </div>
  );
}

/** The class of a word: how it is coloured, and how underlined if something points at it. */
function marked(token: Token, told: readonly Finding[]): string {
  const finding = token.finding === null ? undefined : told[token.finding];
  return finding === undefined ? token.kind : `${token.kind} marked ${finding.kind}`;
}

/** The list is at most so wide, and does not stand out on the right. */
const LIST_WIDTH_PX = 340;

/** Where the character at `index` of the coloured text stands: below it is the place of the options. */
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
    const left = Math.max(8, Math.min(at.left - frame.left, frame.width - LIST_WIDTH_PX - 8));
    setPlace({ left, top: at.bottom - frame.top + 4 });
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
