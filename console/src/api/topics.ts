/** `/api/streams`: the tenant's topics, what is known of each, and changes of them. */
import { array, type Decoder, nullable, number, object, string, withDefault } from "./decode";
import { ask, change } from "./http";
import { topicPath } from "./records";
import type { Partition } from "./stats";

/** How far a consumer group has read a topic. */
export interface Group {
  group: string;
  lag: number;
  partitions: { partition: number; position: number; lag: number }[];
}

export interface TopicConfig {
  partitions: number;
  storage: string;
  level: string;
  cleanup: string;
  /** `anyone`, or `owners`: nobody appends from outside. */
  writers: string;
  /** Such as `7d`; null keeps records for ever. */
  retention: string | null;
  retention_bytes: number | null;
  segment_bytes: number;
  segment_age: string;
  compression: string;
  record_max_bytes: number;
}

export interface TopicSummary {
  name: string;
  /** `user`, or the first word of a topic that Millstream makes. */
  kind: string;
  config: TopicConfig;
  bytes: number;
  partitions: Partition[];
}

export interface TopicInfo extends TopicSummary {
  groups: Group[];
}

/** Settings of a new topic, or those that are to be changed; null: none. */
export type TopicSettings = Readonly<Record<string, string | number | null>>;

const partitions = array(
  object<Partition>({
    partition: number,
    first: number,
    stable: number,
    tail: number,
    bytes: number,
    segments: nullable(number),
  }),
);

const groups: Decoder<Group[]> = array(
  object<Group>({
    group: string,
    lag: number,
    partitions: array(object<Group["partitions"][number]>({ partition: number, position: number, lag: number })),
  }),
);

const summary = {
  name: string,
  kind: string,
  config: object<TopicConfig>({
    partitions: number,
    storage: string,
    level: string,
    cleanup: string,
    writers: withDefault(string, "anyone"),
    retention: nullable(string),
    retention_bytes: nullable(number),
    segment_bytes: number,
    segment_age: string,
    compression: string,
    record_max_bytes: number,
  }),
  bytes: number,
  partitions,
};

const decodeInfo: Decoder<TopicInfo> = object<TopicInfo>({ ...summary, groups });

export async function fetchTopicList(tenant: string): Promise<TopicSummary[]> {
  return (await ask({ path: "/api/streams", tenant }, array(object<TopicSummary>(summary)))).value;
}

export async function fetchTopic(tenant: string, topic: string): Promise<TopicInfo> {
  return (await ask({ path: `${topicPath(topic)}/info`, tenant }, decodeInfo)).value;
}

export async function fetchGroups(topic: string, tenant: string): Promise<Group[]> {
  return (await fetchTopic(tenant, topic)).groups;
}

export async function createTopic(tenant: string, topic: string, settings: TopicSettings): Promise<void> {
  await change({ path: topicPath(topic), tenant, method: "PUT", body: settings });
}

export async function alterTopic(tenant: string, topic: string, settings: TopicSettings): Promise<void> {
  await change({ path: topicPath(topic), tenant, method: "PATCH", body: settings });
}

export async function deleteTopic(tenant: string, topic: string): Promise<void> {
  await change({ path: topicPath(topic), tenant, method: "DELETE" });
}
