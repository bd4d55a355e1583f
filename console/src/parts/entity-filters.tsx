/** The filters of entities: type, a part of the id, a condition; and the switch of the map. */
import type { ComponentChildren } from "preact";
import type { EntityType } from "../api/entities";
import { whole } from "../format";
import type { EntitiesPlace } from "../pages/entities-place";
import { DraftInput } from "./draft-input";

/** How long typing must pause before the filter is applied. */
const SETTLE_MS = 300;
/** A condition is no condition yet while it is half typed. */
const CONDITION_SETTLE_MS = 900;

const REASON = "q-reason";

export function EntityFilters(props: {
  place: EntitiesPlace;
  types: readonly EntityType[];
  /** The server's reason for refusing the condition. */
  refusal: string | null;
  /** Whether there is anything for a map. */
  isPlaced: boolean;
  onChange: (change: Partial<EntitiesPlace>) => void;
  onMap: (map: EntitiesPlace["map"]) => void;
  /** Further buttons. */
  children: ComponentChildren;
}): ComponentChildren {
  const { place, types, refusal, isPlaced, onChange, onMap, children } = props;
  return (
    <div class="filters">
      <form
        class="filter-fields"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
        }}
      >
        <label class="filter">
          <span>Type</span>
          <TypeChoice
            value={place.type}
            types={types}
            onChange={(type) => {
              onChange({ type });
            }}
          />
        </label>
        <label class="filter">
          <span>Id contains</span>
          <DraftInput
            value={place.id}
            placeholder="any text"
            title="Every character stands for itself; capitals and small letters are told apart"
            settle_ms={SETTLE_MS}
            onCommit={(id) => {
              onChange({ id });
            }}
          />
        </label>
        <div class="condition">
          <label class="filter">
            <span>Condition</span>
            <DraftInput
              value={place.q}
              placeholder="temperature>20"
              title="Statements with ; between them, as in NGSI's parameter q: a==1, a!=1, a>1, a==1..5, a~=pattern, a, !a"
              error={refusal === null ? undefined : REASON}
              settle_ms={CONDITION_SETTLE_MS}
              onCommit={(q) => {
                onChange({ q });
              }}
            />
          </label>
          {refusal !== null && (
            <small id={REASON} class="field-error" role="alert">
              {refusal}
            </small>
          )}
        </div>
      </form>
      <div class="filter-buttons">
        {isPlaced && (
          <button
            type="button"
            aria-pressed={place.map === "shown"}
            onClick={() => {
              onMap(place.map === "shown" ? "hidden" : "shown");
            }}
          >
            {place.map === "shown" ? "Hide map" : "Show map"}
          </button>
        )}
        {children}
      </div>
    </div>
  );
}

function TypeChoice(props: {
  value: string;
  types: readonly EntityType[];
  onChange: (type: string) => void;
}): ComponentChildren {
  const { value, types, onChange } = props;
  return (
    <select
      value={value}
      onChange={(event) => {
        onChange(event.currentTarget.value);
      }}
    >
      <option value="">all types</option>
      {value !== "" && !types.some(({ type }) => type === value) && <option value={value}>{value}</option>}
      {types.map(({ type, count }) => (
        <option key={type} value={type}>
          {type} ({whole(count)})
        </option>
      ))}
    </select>
  );
}
