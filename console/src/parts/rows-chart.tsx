/** A chart of an answer. What is drawn stands in the address bar; else it is guessed. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { counted, short, stepped } from "../format";
import { barsOf } from "../live/bars";
import { usePaced } from "../live/paced";
import { linesOf } from "../live/series";
import type { Row } from "../live/session";
import { type ChartChoice, chartChoice, NONE, type Shape } from "../query/chart-choice";
import { BarChart } from "./bar-chart";
import { Chart } from "./chart";
import { Notice } from "./notice";

const HEIGHT_PX = 280;
/** A chart of thousands of rows is costlier to draw than the table, and nobody reads it as fast. */
const PERIOD_MS = 250;

export function RowsChart(props: {
  columns: readonly string[];
  /** Oldest first. */
  rows: readonly Row[];
  shape: Shape;
  params: URLSearchParams;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { columns, shape, params, onChoose } = props;
  const rows = usePaced(props.rows, PERIOD_MS);
  const choice = useMemo(() => chartChoice(columns, rows, shape, params), [columns, rows, shape, params]);
  if (choice === null) {
    return (
      <Notice tone="quiet" title="Nothing to draw">
        A chart needs a column of numbers.
      </Notice>
    );
  }
  return (
    <>
      <Choices choice={choice} shape={shape} onChoose={onChoose} />
      {choice.kind === "line" ? (
        <LinesOfRows rows={rows} choice={choice} />
      ) : (
        <BarsOfRows rows={rows} choice={choice} shape={shape} />
      )}
    </>
  );
}

function LinesOfRows({ rows, choice }: { rows: readonly Row[]; choice: ChartChoice }): ComponentChildren {
  const lines = useMemo(() => linesOf(rows, choice), [rows, choice]);
  return (
    <>
      <Chart
        title={titleOf(choice)}
        times_s={lines.times_s}
        series={lines.lines}
        format={stepped}
        fromZero={false}
        joinGaps
        height={HEIGHT_PX}
      />
      {lines.hidden > 0 && <p class="chart-note">{counted(lines.hidden, "more line")} could not be told apart.</p>}
    </>
  );
}

function BarsOfRows(props: { rows: readonly Row[]; choice: ChartChoice; shape: Shape }): ComponentChildren {
  const { rows, choice, shape } = props;
  const bars = useMemo(() => {
    const last = rows.at(-1)?.window;
    // Of a window's groups the latest result tells; without groups, each window is a bar.
    const told = shape === "windows" && choice.by.length > 0 ? rows.filter((row) => row.window === last) : rows;
    return barsOf(told, choice.columns, choice.by);
  }, [rows, choice, shape]);
  return <BarChart title={titleOf(choice)} columns={choice.columns} bars={bars} format={short} />;
}

function titleOf({ columns, by }: ChartChoice): string {
  return by.length > 0 ? `${columns.join(", ")} by ${by.map(columnText).join(", ")}` : columns.join(", ");
}

/** The key of a record of a device is that device. */
function columnText(name: string): string {
  return name === "$key" ? "device" : name;
}

function Choices(props: {
  choice: ChartChoice;
  shape: Shape;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { choice, shape, onChoose } = props;
  const { kind, columns, time, by, options } = choice;
  const toggle = (name: string): void => {
    const next = columns.includes(name) ? columns.filter((other) => other !== name) : [...columns, name];
    if (next.length > 0) onChoose({ chart: next.join(",") });
  };
  return (
    <div class="chart-choices">
      <Choice
        label="Draw"
        value={kind}
        options={[
          ["line", "lines"],
          ["bar", "bars"],
        ]}
        onChange={(as) => {
          onChoose({ as });
        }}
      />
      {kind === "line" && (
        <Choice
          label="over"
          value={time ?? NONE}
          options={[
            [NONE, shape === "windows" ? "time of window" : "arrival"],
            ...options.times.map((name): [string, string] => [name, name]),
          ]}
          onChange={(over) => {
            onChoose({ over });
          }}
        />
      )}
      <Choice
        label="by"
        value={by.length > 0 ? by.join(",") : NONE}
        options={[
          [NONE, "–"],
          ...options.by.map((names): [string, string] => [names.join(","), names.map(columnText).join(", ")]),
        ]}
        onChange={(split) => {
          onChoose({ by: split });
        }}
      />
      <div class="chart-columns" role="group" aria-label="Columns drawn">
        {options.columns.map((name) => (
          <button
            key={name}
            type="button"
            class="chip"
            aria-pressed={columns.includes(name)}
            onClick={() => {
              toggle(name);
            }}
          >
            {name}
          </button>
        ))}
      </div>
    </div>
  );
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
