/** Which part of a long list is on the screen, and the way to the others. */
import type { ComponentChildren } from "preact";
import type { Page } from "../api/entities";
import { counted, whole } from "../format";
import { latest, type Remote } from "../live/remote";
import { type EntitiesPlace, LIMITS } from "../pages/entities-place";

export function Paging(props: {
  place: EntitiesPlace;
  remote: Remote<Page>;
  onChange: (change: Partial<EntitiesPlace>) => void;
}): ComponentChildren {
  const { place, remote, onChange } = props;
  const known = latest(remote);
  if (known === null) return null;
  const pages = Math.max(1, Math.ceil(known.total / place.limit));
  const first = (place.page - 1) * place.limit + 1;
  const shown =
    known.entities.length === 0
      ? counted(known.total, "entity", "entities")
      : `${whole(first)}–${whole(first + known.entities.length - 1)} of ${counted(known.total, "entity", "entities")}`;
  return (
    <div class="paging">
      <span role="status">{shown}</span>
      <label>
        <span>Per page</span>
        <select
          value={place.limit}
          onChange={(event) => {
            onChange({ limit: Number(event.currentTarget.value), page: 1 });
          }}
        >
          {LIMITS.map((limit) => (
            <option key={limit} value={limit}>
              {limit}
            </option>
          ))}
        </select>
      </label>
      <button
        type="button"
        disabled={place.page <= 1}
        onClick={() => {
          onChange({ page: place.page - 1 });
        }}
      >
        Previous
      </button>
      <button
        type="button"
        disabled={place.page >= pages}
        onClick={() => {
          onChange({ page: place.page + 1 });
        }}
      >
        Next
      </button>
    </div>
  );
}
