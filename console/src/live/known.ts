/** What a query of this tenant can name: the fields of the stream that it reads, and the topics. */
import { useCallback, useMemo } from "preact/hooks";
import { fetchFields, fetchTopics, type SchemaField } from "../api/schema";
import type { Known } from "../query/completion";
import { percent } from "../query/explain";
import { streamOf } from "../query/text";
import { latest, usePolled } from "./remote";

const PERIOD_MS = 15_000;

/** `seen` are columns of an answer, for when the server cannot tell the fields. */
export function useKnown(tenant: string, text: string, seen: readonly string[]): Known {
  const stream = streamOf(text);
  const fields = latest(
    usePolled(
      useCallback(() => fetchFields(tenant, stream), [tenant, stream]),
      PERIOD_MS,
    ),
  );
  const topics = latest(
    usePolled(
      useCallback(() => fetchTopics(tenant), [tenant]),
      PERIOD_MS,
    ),
  );
  return useMemo(() => {
    const told = (fields ?? []).map((field) => ({ path: field.path, detail: detailOf(field) }));
    const guessed = seen.map((path) => ({ path, detail: "a column of the answer" }));
    return { fields: told.length > 0 ? told : guessed, streams: topics ?? [] };
  }, [fields, topics, seen]);
}

/** `DOUBLE`, `LONG or DOUBLE, in 40 %`. */
function detailOf({ types, present }: SchemaField): string {
  const names = [...types.keys()].filter((name) => name !== "NULL").join(" or ");
  return present < 1 ? `${names}, in ${percent(present)}` : names;
}
