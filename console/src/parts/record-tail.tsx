/** Records as they come: whether the tail is open, and the way to pause it. */
import type { ComponentChildren } from "preact";
import { counted } from "../format";
import type { TailSnapshot } from "../live/record-session";
import type { RecordTail } from "../live/use-record-tail";
import { Notice, sentence } from "./notice";

export function TailStatus({ snapshot }: { snapshot: TailSnapshot }): ComponentChildren {
  const { state, received } = snapshot;
  const [tone, word] = ((): [string, string] => {
    switch (state.kind) {
      case "opening":
        return ["quiet", "Opening"];
      case "live":
        return ["good", "Live"];
      case "paused":
        return ["warning", "Paused"];
      case "broken":
        return ["error", "Broken"];
    }
  })();
  return (
    <>
      <span class={`state ${tone}`} role="status">
        {word}
      </span>
      {received > 0 && (
        <span class="quiet">
          {counted(received, "record")}
          {state.kind === "paused" && state.missed > 0 && `; ${counted(state.missed, "record")} passed by meanwhile`}
        </span>
      )}
    </>
  );
}

/** One button for both, so that it keeps the focus. */
export function PauseButton({ tail }: { tail: RecordTail }): ComponentChildren {
  const { state } = tail.snapshot;
  if (state.kind !== "live" && state.kind !== "paused") return null;
  const paused = state.kind === "paused";
  return (
    <button type="button" onClick={paused ? tail.resume : tail.pause}>
      {paused ? "Resume" : "Pause"}
    </button>
  );
}

/** What is to be said instead of records, or above them. */
export function TailNotice({ tail, waiting }: { tail: RecordTail; waiting: ComponentChildren }): ComponentChildren {
  const { state, received } = tail.snapshot;
  switch (state.kind) {
    case "opening":
      return <Notice tone="quiet" title="Opening the tail…" />;
    case "live":
    case "paused":
      return received === 0 ? waiting : null;
    case "broken":
      return (
        <Notice tone="error" title="The tail is closed">
          {sentence(state.reason)}{" "}
          <button type="button" class="link" onClick={tail.again}>
            Open it again
          </button>
        </Notice>
      );
  }
}
