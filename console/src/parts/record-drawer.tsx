/** One record in full: where it stands, its key, headers and value. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchRecords, type TopicRecord } from "../api/records";
import { ago, moment } from "../format";
import { latest } from "../live/remote";
import { useAsked } from "../live/use-asked";
import { Drawer } from "./drawer";
import { Notice, RemoteNotice } from "./notice";
import { hexLine, RecordBlock } from "./record-value";

export function RecordDrawer(props: {
  tenant: string;
  topic: string;
  /** Such as `0:17`. */
  place: string;
  onClose: () => void;
}): ComponentChildren {
  const { tenant, topic, place, onClose } = props;
  const { remote } = useAsked(
    useCallback((signal: AbortSignal) => fetchRecord(tenant, topic, place, signal), [tenant, topic, place]),
  );
  const found = latest(remote);
  const [partition, offset] = place.split(":");
  return (
    <Drawer title={`Offset ${offset}`} subtitle={`Partition ${partition} of ${topic}`} onClose={onClose}>
      <RemoteNotice remote={remote} what="this record" />
      {found?.record === null && (
        <Notice tone="quiet" title="This record is not there">
          Retention or compaction has removed it, or nothing was stored under this offset.
        </Notice>
      )}
      {found?.record && <Whole record={found.record} />}
    </Drawer>
  );
}

async function fetchRecord(
  tenant: string,
  topic: string,
  place: string,
  signal: AbortSignal,
): Promise<{ record: TopicRecord | null }> {
  const [partition, offset] = place.split(":").map(Number);
  const request = { topic, from: place, limit: 1, filter: { key: "", text: "" } };
  const { records } = await fetchRecords(tenant, { ...request, partition: partition ?? 0 }, signal);
  return { record: records.find((record) => record.offset === offset) ?? null };
}

function Whole({ record }: { record: TopicRecord }): ComponentChildren {
  const { key, value, headers, timestamp } = record;
  const at_ms = Date.parse(timestamp);
  return (
    <>
      <dl class="fact-list plain">
        <div>
          <dt>Time</dt>
          <dd title={timestamp}>
            {moment(at_ms)}, {ago(at_ms, Date.now())}
          </dd>
        </div>
        <div>
          <dt>Key</dt>
          <dd>
            {key.kind === "none" && <span class="absent">none</span>}
            {key.kind === "bytes" && hexLine(key.bytes)}
            {(key.kind === "text" || key.kind === "json") && key.text}
          </dd>
        </div>
      </dl>
      <RecordBlock value={value} />
      {headers.length > 0 && (
        <section class="record-headers" aria-label="Headers">
          <h3>Headers</h3>
          <dl class="fact-list plain">
            {headers.map(([name, text], index) => (
              <div key={index}>
                <dt>{name}</dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
        </section>
      )}
    </>
  );
}
