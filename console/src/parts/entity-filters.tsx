/** Which entities the page shows: fields for type and id, and the switch of the map. */
import type { ComponentChildren } from "preact";
import type { Entity } from "../api/entities";
import type { EntitiesPlace } from "../pages/entities-place";
import { DraftInput } from "./draft-input";

/** How long typing must pause before the filter is applied. */
const SETTLE_MS = 300;

export function EntityFilters(props: {
  place: EntitiesPlace;
  entities: readonly Entity[];
  onChange: (change: Partial<EntitiesPlace>) => void;
  onMap: (map: EntitiesPlace["map"]) => void;
}): ComponentChildren {
  const { place, entities, onChange, onMap } = props;
  const types = [...new Set(entities.map((entity) => entity.type))].sort();
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
      }}
    >
      <Filter
        label="Type"
        value={place.type}
        placeholder="all types"
        options={types}
        onChange={(type) => {
          onChange({ type });
        }}
      />
      <Filter
        label="Id"
        value={place.id}
        placeholder="all ids"
        options={[]}
        onChange={(id) => {
          onChange({ id });
        }}
      />
      <button
        type="button"
        aria-pressed={place.map === "shown"}
        onClick={() => {
          onMap(place.map === "shown" ? "hidden" : "shown");
        }}
      >
        {place.map === "shown" ? "Hide map" : "Show map"}
      </button>
    </form>
  );
}

function Filter(props: {
  label: string;
  value: string;
  placeholder: string;
  options: readonly string[];
  onChange: (value: string) => void;
}): ComponentChildren {
  const { label, value, placeholder, options, onChange } = props;
  const list = `options-${label.toLowerCase()}`;
  return (
    <label class="filter">
      <span>{label}</span>
      <DraftInput value={value} placeholder={placeholder} list={list} settle_ms={SETTLE_MS} onCommit={onChange} />
      <datalist id={list}>
        {options.map((option) => (
          <option key={option} value={option} />
        ))}
      </datalist>
    </label>
  );
}
