/** The choices on the page of topics, as the address bar has them. */
import type { Move } from "../route";
import { LIMITS } from "./entities-place";

const LIMIT_DEFAULT = 50;

export interface TopicsPlace {
  tenant: string;
  /** Only topics whose name has this in it. */
  search: string;
  /** The topic that is open; empty: none. */
  topic: string;
  /** Only records of this partition; empty: all. */
  partition: string;
  /** A pattern for the keys of records; empty: all. */
  key: string;
  /** Text that the values of records have in them; empty: all. */
  text: string;
  /** Empty: the newest; `oldest`; an ISO time; an offset in each partition; or a position such as `0:17,1:4`. */
  at: string;
  /** Whether the page begins at that place or ends before it. */
  side: "from" | "before";
  limit: number;
  /** `tail`: records are shown as they come. */
  mode: "pages" | "tail";
  /** The record that is open, such as `0:17`; empty: none. */
  record: string;
}

/** Goes to where `change` leads from the place at hand. */
export type TopicsMover = (change: Partial<TopicsPlace>, how: Move) => void;

/** What leads from one topic to the list, or to the first page of another topic. */
export const NO_TOPIC = {
  topic: "",
  partition: "",
  key: "",
  text: "",
  at: "",
  side: "from",
  mode: "pages",
  record: "",
} as const;

export function topicsPlace(params: URLSearchParams): TopicsPlace {
  const limit = Number(params.get("limit") ?? LIMIT_DEFAULT);
  return {
    tenant: params.get("tenant") ?? "",
    search: params.get("search") ?? "",
    topic: params.get("topic") ?? "",
    partition: /^\d+$/.exec(params.get("partition") ?? "")?.[0] ?? "",
    key: params.get("key") ?? "",
    text: params.get("text") ?? "",
    at: params.get("at") ?? "",
    side: params.get("side") === "before" ? "before" : "from",
    limit: LIMITS.find((choice) => choice === limit) ?? LIMIT_DEFAULT,
    mode: params.get("mode") === "tail" ? "tail" : "pages",
    record: /^\d+:\d+$/.exec(params.get("record") ?? "")?.[0] ?? "",
  };
}

export function topicsParams(place: TopicsPlace): Record<string, string> {
  return {
    ...place,
    side: place.side === "from" ? "" : place.side,
    limit: place.limit === LIMIT_DEFAULT ? "" : String(place.limit),
    mode: place.mode === "pages" ? "" : place.mode,
  };
}
