/** The records of one topic: pages that go both ways, or the tail. */
import type { ComponentChildren } from "preact";
import { useCallback, useMemo } from "preact/hooks";
import { fetchRecords, openTail, positionOf, positionText } from "../api/records";
import { fetchTopic } from "../api/topics";
import { counted } from "../format";
import { type Bounds, pageBefore, pageFrom, PARTITIONS_MAX, type RecordPage } from "../live/record-pages";
import { latest } from "../live/remote";
import { useAsked } from "../live/use-asked";
import { useRecordTail } from "../live/use-record-tail";
import { LIMITS } from "../pages/entities-place";
import { type TopicsMover, topicsParams, type TopicsPlace } from "../pages/topics-place";
import { href } from "../route";
import { Notice, RemoteNotice } from "./notice";
import { PauseButton } from "./live-state";
import { TailNotice, TailStatus } from "./record-tail";
import { RecordTable } from "./record-table";

interface BrowserProps {
  place: TopicsPlace;
  onMove: TopicsMover;
}

export function RecordPages(props: BrowserProps & { told: number; empty: ComponentChildren }): ComponentChildren {
  const { place, onMove, told, empty } = props;
  const { tenant, topic, partition, key, text, at, side, limit } = place;
  const { remote, isAsking, again } = useAsked(
    useCallback(
      (signal: AbortSignal) =>
        // Another number asks again at once.
        fetchPage({ tenant, topic, partition, key, text, at, side, limit }, signal).then((page) => ({ ...page, told })),
      [tenant, topic, partition, key, text, at, side, limit, told],
    ),
  );
  const page = latest(remote);
  return (
    <>
      <RemoteNotice remote={remote} what="records" />
      {page !== null && page.unread > 0 && (
        <Notice tone="quiet" title={`${counted(page.unread, "partition is", "partitions are")} not read here`}>
          A page is read from {PARTITIONS_MAX} partitions at most: choose one of them above.
        </Notice>
      )}
      {page !== null && page.records.length === 0 && <NoRecords page={page} place={place} empty={empty} />}
      {page !== null && page.records.length > 0 && (
        <RecordTable
          records={page.records}
          label={`Records of ${topic}`}
          open={place.record}
          address={(record) =>
            href("topics", topicsParams({ ...place, record: `${record.partition}:${record.offset}` }))
          }
        />
      )}
      {page !== null && <PageSteps page={page} place={place} isAsking={isAsking} onAgain={again} onMove={onMove} />}
    </>
  );
}

function NoRecords(props: { page: RecordPage; place: TopicsPlace; empty: ComponentChildren }): ComponentChildren {
  const { page, place, empty } = props;
  if (place.key !== "" || place.text !== "") {
    const more = page.hasOlder || page.hasNewer;
    return (
      <Notice tone="quiet" title={more ? "Nothing found so far" : "No record is like that"}>
        {more
          ? "A search looks at a part of the topic at a time: go on with Older or Newer."
          : "Change key or text above to see others."}
      </Notice>
    );
  }
  if (page.hasOlder || page.hasNewer) return <Notice tone="quiet" title="There are no records at this place" />;
  return empty;
}

function PageSteps(props: {
  page: RecordPage;
  place: TopicsPlace;
  isAsking: boolean;
  onAgain: () => void;
  onMove: TopicsMover;
}): ComponentChildren {
  const { page, place, isAsking, onAgain, onMove } = props;
  const to = (change: Partial<TopicsPlace>): void => {
    onMove({ ...change, record: "" }, "step");
  };
  return (
    <div class="paging">
      <span role="status">{isAsking ? "Reading…" : `${counted(page.records.length, "record")} here`}</span>
      <label>
        <span>Per page</span>
        <select
          value={place.limit}
          onChange={(event) => {
            to({ limit: Number(event.currentTarget.value) });
          }}
        >
          {LIMITS.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </select>
      </label>
      <div class="paging-steps">
        <button
          type="button"
          onClick={() => {
            if (place.at === "") onAgain();
            else to({ at: "", side: "from" });
          }}
        >
          Newest
        </button>
        <button
          type="button"
          disabled={!page.hasNewer}
          onClick={() => {
            to({ at: positionText(page.after), side: "from" });
          }}
        >
          Newer
        </button>
        <button
          type="button"
          disabled={!page.hasOlder}
          onClick={() => {
            to({ at: positionText(page.before), side: "before" });
          }}
        >
          Older
        </button>
      </div>
    </div>
  );
}

type Wanted = Pick<TopicsPlace, "tenant" | "topic" | "partition" | "key" | "text" | "at" | "side" | "limit">;

/** The page, and of how many partitions nothing was read. */
async function fetchPage(place: Wanted, signal: AbortSignal): Promise<RecordPage & { unread: number }> {
  const { tenant, topic, key, text, at, side, limit } = place;
  const info = await fetchTopic(tenant, topic);
  const wanted = info.partitions.filter(
    ({ partition }) => place.partition === "" || String(partition) === place.partition,
  );
  if (wanted.length === 0) {
    throw new Error(`topic '${topic}' has partitions 0 to ${info.partitions.length - 1}; choose one of these`);
  }
  const bounds = wanted.slice(0, PARTITIONS_MAX);
  const source = {
    topic,
    filter: { key, text },
    fetch: (request: Parameters<typeof fetchRecords>[1]) => fetchRecords(tenant, request, signal),
  };
  const page =
    at === "" || side === "before"
      ? await pageBefore(source, bounds, at === "" ? ends(bounds) : positionOf(at), limit)
      : await pageFrom(source, bounds, placeOf(at, bounds), limit);
  return { ...page, unread: wanted.length - bounds.length };
}

function ends(bounds: readonly Bounds[]): Map<number, number> {
  return new Map(bounds.map(({ partition, stable }) => [partition, stable]));
}

function placeOf(at: string, bounds: readonly Bounds[]): ReadonlyMap<number, number> | string {
  if (at === "oldest") return new Map();
  if (/^\d+$/.test(at)) return new Map(bounds.map(({ partition }) => [partition, Number(at)]));
  return at.includes("T") ? at : positionOf(at);
}

/** The records that come while one looks, the newest first. */
export function RecordFollow({ place, partitions }: { place: TopicsPlace; partitions: number }): ComponentChildren {
  const { tenant, topic, partition, key, text } = place;
  const tooMany = partition === "" && partitions > TAIL_PARTITIONS_MAX;
  const sources = useMemo(() => {
    if (tooMany) return null;
    const open = (signal: AbortSignal) => openTail(tenant, topic, "latest", { key, text }, signal, partition);
    return [[topic, open] as const];
  }, [tenant, topic, partition, key, text, tooMany]);
  const tail = useRecordTail(sources);
  if (tooMany) {
    return (
      <Notice tone="quiet" title="This topic has too many partitions to follow all of them">
        Choose one of them above.
      </Notice>
    );
  }
  const { records } = tail.snapshot;
  return (
    <>
      <div class="card-tools">
        <TailStatus snapshot={tail.snapshot} />
        <span class="spring" />
        <PauseButton of={tail} />
      </div>
      <TailNotice tail={tail} waiting={<Notice tone="quiet" title="Waiting for the next record" />} />
      {records.length > 0 && (
        <RecordTable
          records={records}
          label={`Records of ${topic}`}
          open={place.record}
          address={(record) =>
            href("topics", topicsParams({ ...place, record: `${record.partition}:${record.offset}` }))
          }
        />
      )}
    </>
  );
}

/** Partitions that the server lets one tail read. */
const TAIL_PARTITIONS_MAX = 128;
