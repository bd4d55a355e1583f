/** What the records of a stream have been seen to hold. */
import { array, type Decoder, dictionary, type Json, json, number, object, string, withDefault } from "./decode";
import { ask, Refused } from "./http";

export interface SchemaField {
  /** As a query names it. */
  path: string;
  /** In how many records it is of which type. */
  types: Map<string, number>;
  /** In which share of the records it is there, from 0 to 1. */
  present: number;
  /** A few of its values. */
  examples: Json[];
}

const topics = array(object<{ name: string; kind: string }>({ name: string, kind: string }));

const schema: Decoder<{ fields: SchemaField[] }> = object({
  fields: array(
    object<SchemaField>({
      path: string,
      types: withDefault(dictionary(number), new Map()),
      present: number,
      examples: withDefault(array(json), []),
    }),
  ),
});

export async function fetchTopics(tenant: string): Promise<string[]> {
  return (await ask({ path: "/api/streams", tenant }, topics)).value.map(({ name }) => name);
}

/** The topics that users have made. */
export async function fetchUserTopics(tenant: string): Promise<string[]> {
  const { value } = await ask({ path: "/api/streams", tenant }, topics);
  return value.filter(({ kind }) => kind === "user").map(({ name }) => name);
}

/** The fields of a topic, or of what `STREAM()` is (null). None if the server cannot tell. */
export async function fetchFields(tenant: string, stream: string | null): Promise<SchemaField[]> {
  const query = stream === null ? "" : `?${new URLSearchParams({ stream })}`;
  try {
    return (await ask({ path: `/api/queries/columns${query}`, tenant }, schema)).value.fields;
  } catch (cause) {
    if (cause instanceof Refused) return [];
    throw cause;
  }
}
