/** What a page says when there is nothing to show, or when what it shows is old. */
import type { ComponentChildren } from "preact";
import type { Remote } from "../live/remote";
import { clock } from "../format";

export function Notice(props: {
  tone: "quiet" | "warning" | "error";
  title: string;
  children?: ComponentChildren;
}): ComponentChildren {
  return (
    <div class={`notice ${props.tone}`} role={props.tone === "quiet" ? "status" : "alert"}>
      <strong>{props.title}</strong>
      {props.children !== undefined && <p>{props.children}</p>}
    </div>
  );
}

/** The notice that belongs to a state, if it needs one. `what` completes "Loading …". */
export function RemoteNotice<T>({ remote, what }: { remote: Remote<T>; what: string }): ComponentChildren {
  switch (remote.kind) {
    case "live":
      return null;
    case "loading":
      return <Notice tone="quiet" title={`Loading ${what}…`} />;
    case "stalled":
      return (
        <Notice tone="warning" title="The server does not answer">
          {sentence(remote.reason)} What you see is from {clock(remote.since)}; this page goes on trying.
        </Notice>
      );
    case "refused":
      return (
        <Notice tone="error" title={`Cannot show ${what}`}>
          {sentence(remote.reason)}
        </Notice>
      );
    case "failed":
      return (
        <Notice tone="error" title={`Cannot show ${what}`}>
          {sentence(remote.reason)} This page goes on trying.
        </Notice>
      );
  }
}

/** A reason, which begins small and has no full stop, as a sentence of its own. */
export function sentence(reason: string): string {
  const begun = reason.charAt(0).toUpperCase() + reason.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
