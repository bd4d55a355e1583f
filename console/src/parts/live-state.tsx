/** The state of records that come live, and the button that stops them for a while. */
import type { ComponentChildren } from "preact";

type Kind = "opening" | "live" | "paused" | "ended" | "broken";

const STATES: Readonly<Record<Kind, readonly [tone: string, word: string]>> = {
  opening: ["quiet", "Opening"],
  live: ["good", "Live"],
  paused: ["warning", "Paused"],
  ended: ["quiet", "Ended"],
  broken: ["error", "Broken"],
};

export function LiveState({ kind }: { kind: Kind }): ComponentChildren {
  const [tone, word] = STATES[kind];
  return (
    <span class={`state ${tone}`} role="status">
      {word}
    </span>
  );
}

/** One button for both, so that it keeps the focus. */
export function PauseButton(props: {
  of: { snapshot: { state: { kind: Kind } }; pause: () => void; resume: () => void };
}): ComponentChildren {
  const { snapshot, pause, resume } = props.of;
  const { kind } = snapshot.state;
  if (kind !== "live" && kind !== "paused") return null;
  return (
    <button type="button" onClick={kind === "paused" ? resume : pause}>
      {kind === "paused" ? "Resume" : "Pause"}
    </button>
  );
}
