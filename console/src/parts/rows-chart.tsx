/** A chart of one numeric column of the rows. What is drawn stands in the address bar; else it is guessed. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { short } from "../format";
import { chartColumns, linesOf } from "../live/series";
import { usePaced } from "../live/paced";
import type { Row } from "../live/session";
import { Chart } from "./chart";
import { Notice } from "./notice";

const HEIGHT_PX = 280;
/** A chart of thousands of rows is costlier to draw than the table, and nobody reads it as fast. */
const PERIOD_MS = 250;
/** In the address bar: no column, even where one would be guessed. */
const NONE = "-";

export function RowsChart(props: {
  columns: readonly string[];
  rows: readonly Row[];
  params: URLSearchParams;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { columns, params, onChoose } = props;
  const rows = usePaced(props.rows, PERIOD_MS);
  const available = useMemo(() => chartColumns(columns, rows), [columns, rows]);
  const column = pick(available.numeric, params.get("chart")) ?? available.numeric[0];
  // What a device says of the time of its measurement is closer to the matter than when that came here.
  const time = pickOrNone(available.temporal, params.get("over"));
  const by = pickOrNone(available.categorical, params.get("by"));
  const lines = useMemo(
    () => (column === undefined ? null : linesOf(rows, column, time, by)),
    [rows, column, time, by],
  );
  if (column === undefined || lines === null) {
    return (
      <Notice tone="quiet" title="No column holds numbers">
        Nothing to draw yet.
      </Notice>
    );
  }
  return (
    <>
      <div class="chart-choices">
        <Choice
          label="Chart"
          value={column}
          options={available.numeric.map((name) => [name, name])}
          onChange={(chart) => {
            onChoose({ chart });
          }}
        />
        <Choice
          label="over"
          value={time ?? NONE}
          options={[[NONE, "arrival"], ...available.temporal.map((name): [string, string] => [name, name])]}
          onChange={(over) => {
            onChoose({ over });
          }}
        />
        <Choice
          label="by"
          value={by ?? NONE}
          options={[[NONE, "one line"], ...available.categorical.map((name): [string, string] => [name, name])]}
          onChange={(split) => {
            onChoose({ by: split });
          }}
        />
      </div>
      <Chart
        title={column}
        times_s={lines.times_s}
        series={lines.lines}
        format={short}
        fromZero={false}
        joinGaps
        height={HEIGHT_PX}
      />
    </>
  );
}

function pick(options: readonly string[], wanted: string | null): string | null {
  return options.find((option) => option === wanted) ?? null;
}

/** The column that is wanted, else the first; null if none is wanted or there is none. */
function pickOrNone(options: readonly string[], wanted: string | null): string | null {
  return wanted === NONE ? null : (pick(options, wanted) ?? options[0] ?? null);
}

function Choice(props: {
  label: string;
  value: string;
  options: readonly [string, string][];
  onChange: (value: string) => void;
}): ComponentChildren {
  const { label, value, options, onChange } = props;
  return (
    <label>
      <span>{label}</span>
      <select
        value={value}
        onChange={(event) => {
          onChange(event.currentTarget.value);
        }}
      >
        {options.map(([option, name]) => (
          <option key={option} value={option}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
