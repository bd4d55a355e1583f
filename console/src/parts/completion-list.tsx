/** The options for the word at the caret, below that word. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Option, OptionKind } from "../completion";

export const LIST_ID = "completion";

export function optionId(index: number): string {
  return `${LIST_ID}-${index}`;
}

const MARKS: Record<OptionKind, string> = {
  field: "a",
  record: "$",
  function: "ƒ",
  keyword: "·",
  stream: "≋",
  key: ":",
  value: "=",
  node: "◦",
};

export function CompletionList(props: {
  options: readonly Option[];
  active: number;
  left: number;
  top: number;
  onTake: (option: Option) => void;
}): ComponentChildren {
  const { options, active, left, top, onTake } = props;
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    list.current?.children[active]?.scrollIntoView({ block: "nearest" });
  }, [active]);
  return (
    <ul
      class="completion"
      id={LIST_ID}
      ref={list}
      role="listbox"
      aria-label="Completions"
      // A long list scrolls.
      tabIndex={0}
      // It does not stand out on the right.
      style={{ left: `clamp(8px, ${left}px, calc(100% - var(--completion-width) - 8px))`, top: `${top}px` }}
    >
      {options.map((option, index) => (
        <li
          key={option.text}
          id={optionId(index)}
          role="option"
          aria-selected={index === active}
          // Before the field loses the focus.
          onMouseDown={(event) => {
            event.preventDefault();
            onTake(option);
          }}
        >
          <i class={option.kind} aria-hidden="true">
            {MARKS[option.kind]}
          </i>
          <span>{option.text}</span>
          <small>{option.detail}</small>
        </li>
      ))}
    </ul>
  );
}
