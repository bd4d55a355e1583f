/** Which part of a long list is on the screen, and the way to the others. */
import type { ComponentChildren } from "preact";
import { counted, whole } from "../format";
import { LIMITS } from "../pages/entities-place";

export function Paging(props: {
  /** From 1. */
  page: number;
  limit: number;
  /** How many are on this page, and on all. */
  shown: number;
  total: number;
  /** One, and several. */
  nouns: readonly [string, string];
  /** How many a page may have; those of entities if left out. */
  limits?: readonly number[];
  onChange: (change: { page: number; limit?: number }) => void;
}): ComponentChildren {
  const { page, limit, shown, total, nouns, limits = LIMITS, onChange } = props;
  const pages = Math.max(1, Math.ceil(total / limit));
  const first = (page - 1) * limit + 1;
  const all = counted(total, ...nouns);
  return (
    <div class="paging">
      <span role="status">{shown === 0 ? all : `${whole(first)}–${whole(first + shown - 1)} of ${all}`}</span>
      <label>
        <span>Per page</span>
        <select
          value={limit}
          onChange={(event) => {
            onChange({ limit: Number(event.currentTarget.value), page: 1 });
          }}
        >
          {limits.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </select>
      </label>
      <div class="paging-steps">
        <button
          type="button"
          disabled={page <= 1}
          onClick={() => {
            onChange({ page: page - 1 });
          }}
        >
          Previous
        </button>
        <button
          type="button"
          disabled={page >= pages}
          onClick={() => {
            onChange({ page: page + 1 });
          }}
        >
          Next
        </button>
      </div>
    </div>
  );
}
