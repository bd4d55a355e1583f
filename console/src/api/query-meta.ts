/** What the server tells about a query and about its results. */
import { array, type Decoder, nullable, number, object, string, withDefault } from "./decode";

/** An interval around an estimate. */
export interface Bounds {
  lower: number;
  upper: number;
}

/** How sure a result is. What does not apply to a family of sketches is null. */
export interface Sketch {
  /** `groups`, `top`, `distribution`, or the name of an aggregate. */
  of: string;
  family: string;
  size_bytes: number;
  /** Otherwise the result is exact. */
  was_estimated: boolean;
  uniques_estimate: number | null;
  /** With 1, 2 and 3 standard deviations. */
  standard_deviations: Bounds[];
  /** The largest share by which one of several estimates may err, with 3 standard deviations. */
  relative_error: number | null;
  min: number | null;
  max: number | null;
  items_seen: number | null;
  /** By which share of all values a rank may err, with 99 % confidence. */
  rank_error: number | null;
  count_error: number | null;
  active_items: number | null;
}

/** What is told about the result of one window. */
export interface WindowMeta {
  /** `tumbling time`, `additive records` and the like. */
  name: string;
  /** From 1. */
  number: number;
  /** Milliseconds, or records that match. */
  size: number;
  emit_time_ms: number;
  /** The bounds of a window that lies on the clock, the calendar or event time; null for others. */
  start_ms: number | null;
  end_ms: number | null;
  /** Of how many records it is. */
  records: number;
  sketches: Sketch[];
  /** What of it is an estimate, in words. */
  notes: string[];
}

/** What the server says of a query. */
export interface Summary {
  /** Why it has ended; null while it lives. */
  cause: string | null;
  /** The topic that it read. */
  stream: string;
  received_ms: number | null;
  elapsed_us: number | null;
  records_seen: number;
  matched: number;
  /** Rows the server left out because this client was too slow. */
  dropped: number;
  evaluation_errors: number;
  not_json: number;
  /** Offsets that were gone before they could be read. */
  skipped: number;
  /** Records that came after the windows of their times were given. */
  late: number;
  clamped: Clamped[];
  errors: Trouble[];
  /** Those behind the rows of a query without windows. */
  sketches: Sketch[];
  /** What of these rows is an estimate, in words. */
  notes: string[];
}

/** A setting that was given smaller than asked for. */
export interface Clamped {
  setting: string;
  given: number;
}

export interface Trouble {
  error: string;
  resolution: string;
}

const bounds = object<Bounds>({ lower: number, upper: number });

const sketch = object<Sketch>({
  of: string,
  family: string,
  size_bytes: withDefault(number, 0),
  was_estimated: (value) => value === true,
  uniques_estimate: nullable(number),
  standard_deviations: withDefault(array(bounds), []),
  relative_error: nullable(number),
  min: nullable(number),
  max: nullable(number),
  items_seen: nullable(number),
  rank_error: nullable(number),
  count_error: nullable(number),
  active_items: nullable(number),
});

export const windowMeta: Decoder<WindowMeta> = object<WindowMeta>({
  name: string,
  number,
  size: number,
  emit_time_ms: number,
  start_ms: nullable(number),
  end_ms: nullable(number),
  records: withDefault(number, 0),
  sketches: withDefault(array(sketch), []),
  notes: withDefault(array(string), []),
});

export const summary: Decoder<Summary> = object<Summary>({
  cause: nullable(string),
  stream: withDefault(string, ""),
  received_ms: nullable(number),
  elapsed_us: nullable(number),
  records_seen: withDefault(number, 0),
  matched: withDefault(number, 0),
  dropped: withDefault(number, 0),
  evaluation_errors: withDefault(number, 0),
  not_json: withDefault(number, 0),
  skipped: withDefault(number, 0),
  late: withDefault(number, 0),
  clamped: withDefault(array(object<Clamped>({ setting: string, given: number })), []),
  errors: withDefault(array(object<Trouble>({ error: string, resolution: string })), []),
  sketches: withDefault(array(sketch), []),
  notes: withDefault(array(string), []),
});
