/** An empty list of entities: the reason, and the next step. */
import type { ComponentChildren } from "preact";
import type { EntitiesPlace, Mover } from "../pages/entities-place";
import { commandFlags } from "../pages/command-flags";
import { FirstSteps } from "./command";
import { Notice } from "./notice";

export function NoEntities(props: {
  place: EntitiesPlace;
  /** The server refuses the condition. */
  refused: boolean;
  /** The number of entities on all pages. */
  total: number;
  onMove: Mover;
}): ComponentChildren {
  const { place, refused, total, onMove } = props;
  const flags = commandFlags(place.tenant);
  if (refused) return <Notice tone="quiet" title="The condition cannot be used: the reason stands below it" />;
  if (place.page > 1 && total > 0) {
    return (
      <Notice tone="quiet" title="This page is beyond the last entity">
        <button
          type="button"
          class="link"
          onClick={() => {
            onMove({ page: Math.ceil(total / place.limit) }, "amend");
          }}
        >
          Go to the last page
        </button>
      </Notice>
    );
  }
  if (place.type !== "" || place.id !== "" || place.q !== "") {
    return (
      <Notice tone="quiet" title="No entity matches">
        Change the filters above to see others, or{" "}
        <button
          type="button"
          class="link"
          onClick={() => {
            onMove({ type: "", id: "", q: "", page: 1 }, "amend");
          }}
        >
          show all
        </button>
        .
      </Notice>
    );
  }
  return (
    <FirstSteps
      title="There are no entities yet"
      command={`millstream entity set Room1 temperature=21.5 --type Room${flags}\nmillstream entity list${flags}`}
    >
      Every device that sends a measurement becomes one, with an attribute for each member it sends. Create the first
      one with the button above, or from a terminal:
    </FirstSteps>
  );
}
