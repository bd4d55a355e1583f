/** Topics: the tenant's, or one with its records. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { TopicList } from "../parts/topic-list";
import { TopicView } from "../parts/topic-view";
import { go, href } from "../route";
import { type TopicsMover, topicsParams, topicsPlace } from "./topics-place";

export function TopicsPage({ params }: { params: URLSearchParams }): ComponentChildren {
  const place = useMemo(() => topicsPlace(params), [params]);
  const move: TopicsMover = (change, how) => {
    go(href("topics", topicsParams({ ...place, ...change })), how);
  };
  return (
    <div class="page">
      {place.topic === "" ? (
        <TopicList place={place} onMove={move} />
      ) : (
        <TopicView key={`${place.tenant} ${place.topic}`} place={place} onMove={move} />
      )}
    </div>
  );
}
