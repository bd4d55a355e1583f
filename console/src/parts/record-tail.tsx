/** Records as they come: whether the tail is open, and the way to pause it. */
import type { ComponentChildren } from "preact";
import { counted } from "../format";
import type { TailSnapshot } from "../live/record-session";
import type { RecordTail } from "../live/use-record-tail";
import { LiveState } from "./live-state";
import { Notice, sentence } from "./notice";

export function TailStatus({ snapshot }: { snapshot: TailSnapshot }): ComponentChildren {
  const { state, received } = snapshot;
  return (
    <>
      <LiveState kind={state.kind} />
      {received > 0 && (
        <span class="quiet">
          {counted(received, "record")}
          {state.kind === "paused" && state.missed > 0 && `; ${counted(state.missed, "record")} passed by meanwhile`}
        </span>
      )}
    </>
  );
}

/** The words in place of records, or above them. */
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
