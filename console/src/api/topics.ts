/** `GET /api/streams/{topic}/info`: what is known of one topic beyond the figures of all. */
import { array, type Decoder, number, object, string } from "./decode";
import { ask } from "./http";

/** How far a consumer group has read a topic. */
export interface Group {
  group: string;
  lag: number;
  partitions: { partition: number; position: number; lag: number }[];
}

const decodeInfo: Decoder<{ groups: Group[] }> = object<{ groups: Group[] }>({
  groups: array(
    object<Group>({
      group: string,
      lag: number,
      partitions: array(object<Group["partitions"][number]>({ partition: number, position: number, lag: number })),
    }),
  ),
});

export async function fetchGroups(topic: string, tenant: string): Promise<Group[]> {
  const path = `/api/streams/${encodeURIComponent(topic)}/info`;
  return (await ask({ path, tenant }, decodeInfo)).value.groups;
}
