/** A time series, drawn by uPlot in the page's colours. Its legend shows the values under the pointer, else the last. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import UPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { legendStep, tickLabel, timeRange, valueRange } from "./axis";
import { duration } from "../format";
import { colourReader, useColoursVersion } from "../theme";

export interface Series {
  label: string;
  values: readonly (number | null)[];
}

export interface ChartProps {
  title: string;
  /** Seconds since 1970, ascending. */
  times_s: readonly number[];
  series: readonly Series[];
  /** The text of a value among others that are at least a step apart. */
  format: (value: number, step: number) => string;
  /** The most time the axis shows, up to the last sample; all there is if left out. */
  span_s?: number;
  /** Whether the axis of values begins at zero. */
  fromZero: boolean;
  /** Whether a line goes on over moments at which only other lines have a value. */
  joinGaps?: boolean;
  height: number;
}

/** So few samples, where all are shown, are marked each by itself: a line through one or two is hard to see. */
const POINTS_MAX = 40;

/** What the axis of values takes. */
const VALUES_PX = 58;
/** Half of the longest label of the time axis. */
const LABEL_HALF_PX = 30;

/** As many series as the style sheet has colours (`--series-1` …). */
export const SERIES_MAX = 8;

export function seriesColour(index: number): string {
  return `--series-${(index % SERIES_MAX) + 1}`;
}

export function Chart(props: ChartProps): ComponentChildren {
  const { title, times_s, series, format, span_s, fromZero, joinGaps = false, height } = props;
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const latest = useRef(props);
  const [pointed, setPointed] = useState<number | null>(null);
  const colours = useColoursVersion();
  const labels = series.map(({ label }) => label).join("\n");

  useEffect(() => {
    latest.current = props;
    plot.current?.setData(columns(props));
  });

  // Another set of lines, or other colours, is another chart.
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const colour = colourReader(element);
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const font = "11px system-ui, sans-serif";
    const created = new UPlot(
      {
        width: Math.max(element.clientWidth, 100),
        height,
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
        padding: [8, 4, 0, 0],
        scales: {
          x: { range: (_plot, min, max) => timeRange(min, max, span_s) },
          y: { range: (_plot, min, max) => valueRange(min, max, fromZero) },
        },
        axes: [
          {
            ...axis,
            font,
            size: 28,
            space: 72,
            // The plot reaches to the edge: what would stand half beyond it is left out.
            values: (plot, ticks, _axis, _space, step_s) =>
              ticks.map((tick) => (pastLastLabel(plot, tick) ? "" : tickLabel(tick, step_s))),
          },
          {
            ...axis,
            font,
            size: VALUES_PX,
            values: (_plot, ticks, _axis, _space, step) => ticks.map((tick) => format(tick, step)),
          },
        ],
        series: [
          {},
          ...labels.split("\n").map((label, index) => ({
            label,
            stroke: colour(seriesColour(index)),
            width: 1.75,
            points: {
              show: (self: UPlot) => span_s === undefined && self.data[0].length <= POINTS_MAX,
              fill: colour("--surface"),
            },
            spanGaps: joinGaps,
          })),
        ],
        hooks: {
          setCursor: [
            (self: UPlot) => {
              setPointed(self.cursor.idx ?? null);
            },
          ],
        },
      },
      columns(latest.current),
      element,
    );
    plot.current = created;
    const resized = new ResizeObserver(() => {
      created.setSize({ width: Math.max(element.clientWidth, 100), height });
    });
    resized.observe(element);
    return () => {
      resized.disconnect();
      created.destroy();
      plot.current = null;
    };
  }, [labels, colours, height, span_s, fromZero, joinGaps, format]);

  const values = series.map(({ label, values: column }) => ({ label, value: valueAt(column, pointed) }));
  const step = legendStep(
    series.map(({ values: column }) => column),
    fromZero,
  );
  const summary = values
    .map(({ label, value }) => `${label} ${value === null ? "unknown" : format(value, step)}`)
    .join(", ");
  const shown_s = (times_s.at(-1) ?? 0) - (times_s[0] ?? 0);
  const over = span_s !== undefined && shown_s > 0 ? `; over ${duration(shown_s)}` : "";
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        <ul class="legend">
          {values.map(({ label, value }, index) => (
            <li key={label}>
              <i style={{ background: `var(${seriesColour(index)})` }} />
              {label} <b>{value === null ? "–" : format(value, step)}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={host} role="img" aria-label={`${title}: ${summary}${over}`} style={{ height: `${height}px` }} />
      {times_s.length === 0 && <p class="chart-empty">Waiting for the first sample</p>}
    </figure>
  );
}

function columns({ times_s, series }: ChartProps): UPlot.AlignedData {
  return [times_s.slice(), ...series.map(({ values }) => values.slice())] as UPlot.AlignedData;
}

/** Whether the label of a tick of the time axis would not fit on the right of it. */
function pastLastLabel(plot: UPlot, tick: number): boolean {
  const time = plot.scales.x;
  if (time?.min == null || time.max == null) return false;
  return ((time.max - tick) / (time.max - time.min)) * (plot.width - VALUES_PX) < LABEL_HALF_PX;
}

function valueAt(column: readonly (number | null)[], index: number | null): number | null {
  return (index === null ? column.findLast((value) => value !== null) : column[index]) ?? null;
}
