/** What can be done with the text of a query: run it, stop it, begin with an example, keep it, hand it on. */
import type { ComponentChildren } from "preact";
import type { QueryState } from "../live/session";
import { useTold } from "../live/use-told";
import type { Example } from "../query/examples";
import { Menu } from "./menu";
import { SavedQueries } from "./saved-queries";

export function QueryActions(props: {
  text: string;
  state: QueryState;
  examples: readonly Example[];
  /** Where this page can be opened again as it is. */
  link: () => string;
  onText: (text: string) => void;
  onRun: () => void;
  onStop: () => void;
}): ComponentChildren {
  const { text, state, examples, link, onText, onRun, onStop } = props;
  const busy = state.kind === "asking" || state.kind === "live" || state.kind === "stopping";
  return (
    <div class="query-actions">
      {busy ? (
        <button type="button" class="primary stop" onClick={onStop} disabled={state.kind === "stopping"}>
          Stop
        </button>
      ) : (
        <button type="button" class="primary" onClick={onRun} disabled={text.trim() === ""}>
          Run
        </button>
      )}
      <span class="hint">
        <kbd>Ctrl</kbd> <kbd>Enter</kbd> runs, <kbd>Ctrl</kbd> <kbd>Space</kbd> completes
      </span>
      <span class="spring" />
      <Menu label="Examples" edge="right">
        {(close) => (
          <ul class="menu-list">
            {examples.map((example) => (
              <li key={example.title}>
                <button
                  type="button"
                  class="menu-item"
                  title={example.text}
                  onClick={() => {
                    onText(example.text);
                    close();
                  }}
                >
                  {example.title}
                </button>
              </li>
            ))}
          </ul>
        )}
      </Menu>
      <SavedQueries text={text} onTake={onText} />
      <CopyLink link={link} />
    </div>
  );
}

function CopyLink({ link }: { link: () => string }): ComponentChildren {
  const [told, setTold] = useTold<"copied" | "failed">();
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(link());
      setTold("copied");
    } catch {
      // Browsers lend the clipboard to secure pages only.
      setTold("failed");
    }
  };
  return (
    <>
      <button type="button" onClick={() => void copy()}>
        {LINK_TEXTS[told]}
      </button>
      <span class="unseen" role="status">
        {told === "nothing" ? "" : LINK_TEXTS[told]}
      </span>
    </>
  );
}

const LINK_TEXTS = { nothing: "Copy link", copied: "Link copied", failed: "Copy the address bar" } as const;
