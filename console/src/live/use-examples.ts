/** Examples for the query page, from the records that the tenant has. */
import { useCallback, useMemo } from "preact/hooks";
import { fetchFields, fetchUserTopics } from "../api/schema";
import { type Example, examplesOf, type Subject } from "../query/examples";
import { latest } from "./remote";
import { useAsked } from "./use-asked";

/** None until the server has told what there is: a question that changes under the pointer is hard to take. */
export function useExamples(tenant: string): readonly Example[] {
  const { remote } = useAsked(useCallback(() => fetchExamples(tenant), [tenant]));
  const known = latest(remote);
  const isRefused = remote.kind === "refused" || remote.kind === "failed";
  return useMemo(() => known ?? (isRefused ? examplesOf({ topic: null, fields: [] }) : []), [known, isRefused]);
}

/** About what devices send, if they do; else about the first topic that has records. */
async function fetchExamples(tenant: string): Promise<Example[]> {
  const [fields, topics] = await Promise.all([fetchFields(tenant, null), fetchUserTopics(tenant)]);
  const [topic = null] = topics;
  if (fields.length > 0 || topic === null) return examplesOf({ topic: null, fields }, topic);
  const subject: Subject = { topic, fields: await fetchFields(tenant, topic) };
  return subject.fields.length > 0 ? examplesOf(subject) : examplesOf({ topic: null, fields: [] }, topic);
}
