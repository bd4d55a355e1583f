/** What an attribute was: single points, or figures of periods, as the history of entities tells them. */
import { array, type Decoder, type Json, json, nullable, object, plainObject, string } from "./decode";
import { ask, Refused } from "./http";

/** One value and when it was observed, in milliseconds since 1970. */
export interface Point {
  at_ms: number;
  value: Json;
}

/** The figures of the numbers of one period. */
export interface Period {
  from_ms: number;
  mean: number;
  min: number;
  max: number;
}

export interface Whose {
  tenant: string;
  id: string;
  type: string;
  attribute: string;
}

const time: Decoder<number> = (value, path) => Date.parse(string(value, path));

const pair: Decoder<Point> = (value, path) => {
  const [held, at] = array(json)(value, path);
  return { value: json(held, `${path}[0]`), at_ms: time(at, `${path}[1]`) };
};

/** Relationships have objects where properties have values. */
const points: Decoder<Point[]> = (value, path) => {
  const { values, objects } = object({ values: nullable(array(pair)), objects: nullable(array(pair)) })(value, path);
  return values ?? objects ?? [];
};

/** `[value, from, to]` of each period. */
const figures = array((value, path): { value: Json; from_ms: number } => {
  const [held, from] = array(json)(value, path);
  return { value: json(held, `${path}[0]`), from_ms: time(from, `${path}[1]`) };
});

const periods: Decoder<Period[]> = (value, path) => {
  const told = object({ avg: figures, min: figures, max: figures })(value, path);
  const numbers = (list: readonly { value: Json; from_ms: number }[]): Map<number, number> =>
    new Map(list.flatMap(({ value: held, from_ms }) => (typeof held === "number" ? [[from_ms, held]] : [])));
  const [min, max] = [numbers(told.min), numbers(told.max)];
  return [...numbers(told.avg)].map(([from_ms, mean]) => ({
    from_ms,
    mean,
    min: min.get(from_ms) ?? mean,
    max: max.get(from_ms) ?? mean,
  }));
};

/** The latest points, oldest first; with `after_ms` only those after it. */
export async function fetchPoints(whose: Whose, last: number, after_ms: number | null): Promise<Point[]> {
  const since = after_ms === null ? {} : { timerel: "after", timeAt: new Date(after_ms).toISOString() };
  return read(whose, { ...since, lastN: String(last), options: "temporalValues" }, points);
}

/** Mean, least and greatest number of each period (ISO 8601: `PT5M`) after `after_ms`. */
export async function fetchPeriods(whose: Whose, period: string, after_ms: number): Promise<Period[]> {
  const query = {
    timerel: "after",
    timeAt: new Date(after_ms).toISOString(),
    options: "aggregatedValues",
    aggrMethods: "avg,min,max",
    aggrPeriodDuration: period,
  };
  return read(whose, query, periods);
}

/** Nothing if no history is kept of the attribute. */
async function read<T>(whose: Whose, query: Record<string, string>, decoder: Decoder<T[]>): Promise<T[]> {
  const { tenant, id, type, attribute } = whose;
  const parameters = new URLSearchParams({ attrs: attribute, ...query });
  if (type !== "") parameters.set("type", type);
  const path = `/ngsi-ld/v1/temporal/entities/${encodeURIComponent(id)}?${parameters}`;
  try {
    const { value } = await ask({ path, tenant }, (answer, at) => {
      const told = plainObject(answer, at)[attribute];
      return told === undefined ? [] : decoder(told, `${at}.${attribute}`);
    });
    return value;
  } catch (cause) {
    if (cause instanceof Refused && cause.status === 404) return [];
    throw cause;
  }
}
