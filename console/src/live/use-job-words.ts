/** The words that the document of a job may have: those of its schema, and the topics of the tenant. */
import { useCallback, useMemo } from "preact/hooks";
import { fetchSchema } from "../api/job-documents";
import { fetchUserTopics } from "../api/schema";
import type { JobWords } from "../job-document/completion";
import { latest, usePolled } from "./remote";

const TOPICS_PERIOD_MS = 15_000;
/** The schema is that of the server's version; it is asked for again only because the first attempt may have failed. */
const SCHEMA_PERIOD_MS = 60_000;
/** Topics that every tenant has for its devices' messages. */
const OF_DEVICES = ["telemetry", "event"];

export function useJobWords(tenant: string): JobWords {
  const schema = latest(
    usePolled(
      useCallback(() => fetchSchema(tenant), [tenant]),
      SCHEMA_PERIOD_MS,
    ),
  );
  const topics = latest(
    usePolled(
      useCallback(() => fetchUserTopics(tenant), [tenant]),
      TOPICS_PERIOD_MS,
    ),
  );
  return useMemo(() => ({ schema, topics: [...(topics ?? []), ...OF_DEVICES] }), [schema, topics]);
}
