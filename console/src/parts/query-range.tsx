/** Where a query begins and ends: empty for records that arrive from now on. */
import type { ComponentChildren } from "preact";
import type { Range } from "../query/range";
import { DraftInput } from "./draft-input";

export function QueryRange(props: { range: Range; onChange: (change: Partial<Range>) => void }): ComponentChildren {
  const { range, onChange } = props;
  return (
    <div class="query-range">
      <label>
        <span>From</span>
        <DraftInput
          value={range.from}
          placeholder="now"
          list="query-from"
          settle_ms={300}
          onCommit={(from) => {
            onChange({ from });
          }}
        />
      </label>
      <label>
        <span>Until</span>
        <DraftInput
          value={range.until}
          placeholder={range.from === "" || range.from === "now" ? "it is ended" : "now"}
          list="query-until"
          settle_ms={300}
          onCommit={(until) => {
            onChange({ until });
          }}
        />
      </label>
      <span class="hint">earliest, 2h, 7d, or a time such as 2026-01-31T12:00</span>
      <Places id="query-from" places={["earliest", "1h", "24h", "7d", "now"]} />
      <Places id="query-until" places={["now", "never", "1h", "24h"]} />
    </div>
  );
}

function Places({ id, places }: { id: string; places: readonly string[] }): ComponentChildren {
  return (
    <datalist id={id}>
      {places.map((place) => (
        <option key={place} value={place} />
      ))}
    </datalist>
  );
}
