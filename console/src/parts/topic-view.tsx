/** One topic: its figures, its records page by page or as they come, and what it is made of. */
import type { ComponentChildren } from "preact";
import { useCallback, useContext, useMemo, useState } from "preact/hooks";
import { fetchTopic, type TopicInfo } from "../api/topics";
import { bytes, counted, short, whole } from "../format";
import { AddressesContext, commands } from "../live/addresses";
import { useRates } from "../live/rates";
import { latest, usePolled } from "../live/remote";
import { commandFlags } from "../pages/command-flags";
import { NO_TOPIC, type TopicsMover, topicsParams, type TopicsPlace } from "../pages/topics-place";
import { follow, href } from "../route";
import { FirstSteps } from "./command";
import { RemoteNotice } from "./notice";
import { RecordFollow, RecordPages } from "./record-browser";
import { RecordDrawer } from "./record-drawer";
import { RecordFilters } from "./record-filters";
import { Tile } from "./tile";
import { TopicActions } from "./topic-actions";
import { recordsOf } from "./topic-list";
import { TopicPartitions } from "./topic-partitions";

const PERIOD_MS = 2_000;

export function TopicView({ place, onMove }: { place: TopicsPlace; onMove: TopicsMover }): ComponentChildren {
  const { tenant, topic: name } = place;
  const [told, setTold] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchTopic(tenant, name).then((info) => ({ info, told })), [tenant, name, told]),
    PERIOD_MS,
  );
  const info = latest(remote)?.info ?? null;
  const refresh = (): void => {
    setTold((before) => before + 1);
  };
  return (
    <>
      <div class="page-head">
        <nav aria-label="Way back" class="crumb">
          <a href={href("topics", topicsParams({ ...place, ...NO_TOPIC }))} onClick={follow}>
            Topics
          </a>
          <span aria-hidden="true">›</span>
        </nav>
        <h1>{name}</h1>
        <span class="spring" />
        {info !== null && (
          <TopicActions
            tenant={tenant}
            info={info}
            onAppended={({ partition, offset }) => {
              refresh();
              onMove({ record: `${partition}:${offset}`, at: "", side: "from", key: "", text: "" }, "step");
            }}
            onChanged={refresh}
            onDeleted={() => {
              onMove(NO_TOPIC, "step");
            }}
          />
        )}
      </div>
      <RemoteNotice remote={remote} what="this topic" />
      {info !== null && (
        <>
          <Tiles info={info} />
          <div class={place.record === "" ? "store-body wide" : "store-body"}>
            <section class="card cut-corners" aria-label="Records">
              <RecordFilters place={place} partitions={info.partitions.length} onMove={onMove} />
              {place.mode === "tail" ? (
                <RecordFollow place={place} partitions={info.partitions.length} />
              ) : (
                <RecordPages
                  place={place}
                  told={told}
                  onMove={onMove}
                  empty={<NoRecordsYet info={info} tenant={tenant} />}
                />
              )}
            </section>
            {place.record !== "" && (
              <div class="store-side">
                <RecordDrawer
                  key={place.record}
                  tenant={tenant}
                  topic={name}
                  place={place.record}
                  onClose={() => {
                    onMove({ record: "" }, "step");
                  }}
                />
              </div>
            )}
          </div>
          <TopicPartitions info={info} />
        </>
      )}
    </>
  );
}

function Tiles({ info }: { info: TopicInfo }): ComponentChildren {
  const topics = useMemo(() => [info], [info]);
  const rate = useRates(topics).get(info.name);
  const [size = "", unit = ""] = bytes(info.bytes).split(" ");
  const lag = info.groups.reduce((most, group) => Math.max(most, group.lag), 0);
  return (
    <div class="tiles">
      <Tile label="Records" value={whole(recordsOf(info))}>
        in {counted(info.partitions.length, "partition")}
      </Tile>
      <Tile label="Size" value={size} unit={unit}>
        {info.config.compression === "none" ? "not compressed" : info.config.compression}
      </Tile>
      <Tile label="Rate" value={rate === undefined ? "…" : short(rate)} {...(rate === undefined ? {} : { unit: "/s" })}>
        {info.groups.length === 0 ? "no group reads it" : `largest lag ${whole(lag)}`}
      </Tile>
      <Tile label="Kept" value={info.config.retention ?? "for ever"}>
        {info.config.cleanup}, {info.config.level}
      </Tile>
    </div>
  );
}

/** A topic without records, and the commands that append one. */
function NoRecordsYet({ info, tenant }: { info: TopicInfo; tenant: string }): ComponentChildren {
  const { name, kind } = info;
  const addresses = useContext(AddressesContext);
  if (kind === "telemetry" || kind === "event") {
    return (
      <FirstSteps
        title="There are no records here"
        command={commands(
          addresses.httpMessage("DEVICE@TENANT", "PASSWORD", `/${kind}`),
          addresses.mqttMessage("DEVICE@TENANT", "PASSWORD", kind),
        )}
      >
        Devices of this tenant write here, by HTTP and MQTT.
      </FirstSteps>
    );
  }
  if (info.config.writers !== "anyone")
    return <FirstSteps title="There are no records here">Millstream writes here.</FirstSteps>;
  return (
    <FirstSteps
      title="There are no records here"
      command={commands(
        `echo '{"key": "a", "value": {"n": 1}}' | millstream topic append ${name}${commandFlags(tenant)}`,
        addresses.kafkaRecord(name),
      )}
    >
      Append the first one here, from a terminal or by a Kafka client.
    </FirstSteps>
  );
}
