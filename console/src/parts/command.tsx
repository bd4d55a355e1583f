/** Commands for a terminal, and other text that people copy; and lists that are empty, with the commands that fill them. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useTold } from "../live/use-told";
import { Notice } from "./notice";

const TEXTS = { nothing: "Copy", copied: "Copied", selected: "Press Ctrl+C" } as const;

/** One or more lines for a terminal, with a button that copies them. `label` names them to those who cannot see. */
export function Command({ text, label = "Command" }: { text: string; label?: string }): ComponentChildren {
  const code = useRef<HTMLElement>(null);
  const [told, setTold] = useTold<"copied" | "selected">();
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setTold("copied");
    } catch {
      // Browsers lend the clipboard to secure pages only.
      if (code.current !== null) getSelection()?.selectAllChildren(code.current);
      setTold("selected");
    }
  };
  return (
    <div class="command" role="group" aria-label={label}>
      <pre tabIndex={0}>
        <code ref={code}>{text}</code>
      </pre>
      <button type="button" aria-label={`${TEXTS[told]}: ${label}`} onClick={() => void copy()}>
        {TEXTS[told]}
      </button>
      <span class="unseen" role="status">
        {told === "nothing" ? "" : TEXTS[told]}
      </span>
    </div>
  );
}

/** An empty list: what belongs into it, and the commands that make the first one. */
export function FirstSteps(props: {
  title: string;
  children: ComponentChildren;
  command?: string | undefined;
}): ComponentChildren {
  const { title, children, command } = props;
  return (
    <div class="first-steps">
      <Notice tone="quiet" title={title}>
        {children}
      </Notice>
      {command !== undefined && <Command text={command} />}
    </div>
  );
}
