/** What the axes of a chart show: how far they reach and what their ticks say. */

/** With so little to show, a line still has some length of axis around it. */
const SPAN_MIN_S = 60;

/** The axis of time: all there is, or at most the last `span_s` of it. uPlot gives null where there is nothing to show. */
export function timeRange(min: number | null, max: number | null, span_s: number | undefined): [number, number] {
  if (min === null || max === null) return [0, 1];
  if (span_s === undefined) return min < max ? [min, max] : [min - 1, max + 1];
  return [max - Math.min(span_s, Math.max(SPAN_MIN_S, max - min)), max];
}

/** What a tick of the time axis says, as short as the distance between ticks allows. */
export function tickLabel(moment_s: number, step_s: number): string {
  const date = new Date(moment_s * 1000);
  const two = (part: number): string => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  if (step_s >= 86_400) return day;
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step_s >= 3_600) return `${day.slice(5)} ${minutes}`;
  if (step_s >= 60) return minutes;
  const seconds = `${minutes}:${two(date.getSeconds())}`;
  return step_s >= 1 ? seconds : `${seconds}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** A range of values with a little air, never empty. uPlot gives null where there is nothing to show. */
export function valueRange(min: number | null, max: number | null, fromZero: boolean): [number, number] {
  if (min === null || max === null) return [0, 1];
  const low = fromZero ? Math.min(0, min) : min;
  const air = (max - low) * 0.08 || Math.abs(max) * 0.1 || 1;
  return [fromZero ? low : low - air, max + air];
}

/** So many steps of a legend's values make up all that is drawn. */
const LEGEND_STEPS = 100;
/** Digits of a value beside which nothing else is drawn. */
const ALONE_DIGITS = 7;

/** The step that tells the values of a legend apart, as their spread needs it. */
export function legendStep(columns: readonly (readonly (number | null)[])[], fromZero: boolean): number {
  let [low, high] = fromZero ? [0, 0] : [Infinity, -Infinity];
  for (const column of columns) {
    for (const value of column) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  const power = (size: number): number => 10 ** Math.floor(Math.log10(size));
  if (high > low) return power((high - low) / LEGEND_STEPS);
  return high === low && high !== 0 ? power(Math.abs(high)) / 10 ** (ALONE_DIGITS - 1) : 1;
}
