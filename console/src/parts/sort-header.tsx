/** The head of a column that sorts: a click sorts up, the next one down, a third gives the order of creation back. */
import type { ComponentChildren } from "preact";

export function SortHeader(props: {
  /** The name of the column in `orderBy`. */
  by: string;
  /** The order at hand: as in `orderBy`, with a `!` before it for the reverse. */
  order: string;
  class?: string;
  onOrder: (order: string) => void;
  children: ComponentChildren;
}): ComponentChildren {
  const { by, order, class: look, onOrder, children } = props;
  const direction = order === by ? "ascending" : order === `!${by}` ? "descending" : undefined;
  const next = direction === undefined ? by : direction === "ascending" ? `!${by}` : "";
  return (
    <th scope="col" class={look} aria-sort={direction}>
      <button
        type="button"
        class="sort"
        title={NEXT[direction ?? "none"]}
        onClick={() => {
          onOrder(next);
        }}
      >
        {children}
      </button>
    </th>
  );
}

const NEXT = {
  none: "Sort up",
  ascending: "Sorted up; sort down",
  descending: "Sorted down; back to the order of creation",
} as const;
