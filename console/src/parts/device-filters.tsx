/** Which devices are on the screen, and in which order. */
import type { ComponentChildren } from "preact";
import { devicesPlace, type DevicesMover, type DevicesPlace } from "../pages/devices-place";
import { DraftInput } from "./draft-input";

/** Pause in typing after which the search is applied. */
const SETTLE_MS = 300;

export function DeviceFilters({ place, onMove }: { place: DevicesPlace; onMove: DevicesMover }): ComponentChildren {
  return (
    <form
      class="key-filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
      }}
    >
      <label class="filter" title="A part of the id; with * and ? it is a pattern for the whole id">
        <span>Id</span>
        <DraftInput
          value={place.text}
          placeholder="all devices"
          list="device-ids"
          settle_ms={SETTLE_MS}
          onCommit={(text) => {
            onMove({ text, page: 1 }, "amend");
          }}
        />
        <datalist id="device-ids" />
      </label>
      <Choice
        label="Kind"
        name="kind"
        value={place.kind}
        choices={[
          ["", "all"],
          ["gateways", "gateways"],
          ["others", "no gateways"],
        ]}
        onMove={onMove}
      />
      <Choice
        label="State"
        name="state"
        value={place.state}
        choices={[
          ["", "any"],
          ["connected", "connected"],
          ["disabled", "disabled"],
        ]}
        onMove={onMove}
      />
      <Choice
        label="Order"
        name="order"
        value={place.order}
        choices={[
          ["id", "by id"],
          ["seen", "last seen first"],
          ["created", "newest first"],
        ]}
        onMove={onMove}
      />
    </form>
  );
}

function Choice(props: {
  label: string;
  name: "kind" | "state" | "order";
  value: string;
  choices: readonly (readonly [value: string, label: string])[];
  onMove: DevicesMover;
}): ComponentChildren {
  const { label, name, value, choices, onMove } = props;
  return (
    <label class="filter">
      <span>{label}</span>
      <select
        value={value}
        onChange={(event) => {
          const chosen = devicesPlace(new URLSearchParams({ [name]: event.currentTarget.value }));
          onMove({ [name]: chosen[name], page: 1 }, "step");
        }}
      >
        {choices.map(([choice, text]) => (
          <option key={choice} value={choice}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
