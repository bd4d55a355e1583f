/** What a device sends, and what is sent to it, as it comes; from a minute before its last message on. */
import type { ComponentChildren } from "preact";
import { useCallback, useContext, useMemo, useState } from "preact/hooks";
import type { Credential } from "../api/credentials";
import { type Device, TENANT_DEFAULT } from "../api/devices";
import { openTail } from "../api/records";
import { fetchTopicList } from "../api/topics";
import { AddressesContext, commands } from "../live/addresses";
import { latest, usePolled } from "../live/remote";
import type { TailRecord } from "../live/record-session";
import { useRecordTail } from "../live/use-record-tail";
import { commandFlags } from "../pages/command-flags";
import { topicsParams, topicsPlace } from "../pages/topics-place";
import { href } from "../route";
import { FirstSteps } from "./command";
import { RemoteNotice } from "./notice";
import { PauseButton } from "./live-state";
import { TailNotice, TailStatus } from "./record-tail";
import { RecordTable } from "./record-table";

/** How often the page looks whether the tenant's topics are there: the first message makes them. */
const TOPICS_PERIOD_MS = 2_000;
const BEFORE_LAST_MS = 60_000;

const KINDS: readonly (readonly [kind: string, label: string])[] = [
  ["telemetry", "telemetry"],
  ["event", "event"],
  ["command", "command"],
  ["command_response", "response"],
];

export function DeviceMessages(props: {
  tenant: string;
  device: Device;
  credentials: readonly Credential[];
}): ComponentChildren {
  const { tenant, device, credentials } = props;
  const name = tenant === "" ? TENANT_DEFAULT : tenant;
  const remote = usePolled(
    useCallback(async () => {
      const there = new Set((await fetchTopicList(tenant)).map((topic) => topic.name));
      return KINDS.map(([kind]) => `${kind}.${name}`).filter((topic) => there.has(topic));
    }, [tenant, name]),
    TOPICS_PERIOD_MS,
  );
  // The beginning stays where it was when the page was opened.
  const [from] = useState(() => {
    const seen_ms = device.status.last_seen === null ? Date.now() : Date.parse(device.status.last_seen);
    return new Date(seen_ms - BEFORE_LAST_MS).toISOString();
  });
  const topics = latest(remote)?.join(" ") ?? null;
  const sources = useMemo(() => {
    if (topics === null) return null;
    const filter = { key: device.id, text: "" };
    return topics
      .split(" ")
      .filter((topic) => topic !== "")
      .map((topic) => [topic, (signal: AbortSignal) => openTail(tenant, topic, from, filter, signal)] as const);
  }, [tenant, topics, from, device.id]);
  const tail = useRecordTail(sources);
  const { records } = tail.snapshot;
  const isAnyThere = sources !== null && sources.length > 0;
  return (
    <section class="card cut-corners messages" aria-labelledby="messages">
      <div class="card-tools">
        <h2 id="messages">Messages</h2>
        {isAnyThere && <TailStatus snapshot={tail.snapshot} />}
        <span class="spring" />
        <PauseButton of={tail} />
      </div>
      <RemoteNotice remote={remote} what="messages" />
      {sources?.length === 0 && <FirstMessage tenant={tenant} name={name} device={device} credentials={credentials} />}
      {isAnyThere && (
        <TailNotice
          tail={tail}
          waiting={<FirstMessage tenant={tenant} name={name} device={device} credentials={credentials} />}
        />
      )}
      {records.length > 0 && (
        <div class="messages-scroll" tabIndex={0} role="region" aria-label="Messages of the device">
          <RecordTable
            records={inOrder(records)}
            label="Messages"
            open=""
            first={["Kind", (record) => labelOf(record.topic)]}
            address={({ topic, partition, offset }) => {
              const place = topicsPlace(new URLSearchParams({ tenant, topic, record: `${partition}:${offset}` }));
              return href("topics", topicsParams({ ...place, key: device.id }));
            }}
          />
        </div>
      )}
    </section>
  );
}

/** Records of several tails by time: each tail brings its own in order. */
function inOrder(records: readonly TailRecord[]): TailRecord[] {
  return records.toSorted((a, b) => a.timestamp.localeCompare(b.timestamp));
}

function labelOf(topic: string): string {
  return KINDS.find(([kind]) => topic.startsWith(`${kind}.`))?.[1] ?? topic;
}

/** A device that sends nothing, and the commands that send as it. */
function FirstMessage(props: {
  tenant: string;
  name: string;
  device: Device;
  credentials: readonly Credential[];
}): ComponentChildren {
  const { tenant, name, device, credentials } = props;
  const password = credentials.find(({ type, enabled }) => type === "hashed-password" && enabled);
  const [gateway] = device.via;
  const addresses = useContext(AddressesContext);
  const title = device.status.last_seen === null ? "No message of this device yet" : "Waiting for the next message";
  if (password !== undefined) {
    const user = `${password.auth_id}@${name}`;
    return (
      <FirstSteps
        title={title}
        command={commands(
          addresses.httpMessage(user, "PASSWORD", "/telemetry"),
          addresses.mqttMessage(user, "PASSWORD", "telemetry"),
        )}
      >
        It is shown here as soon as it comes. Send one as the device, over HTTP or MQTT:
      </FirstSteps>
    );
  }
  if (gateway !== undefined) {
    const user = `${gateway}@${name}`;
    return (
      <FirstSteps
        title={title}
        command={commands(
          addresses.httpMessage(user, "PASSWORD", `/telemetry//${device.id}`),
          addresses.mqttMessage(user, "PASSWORD", `t//${device.id}`),
        )}
      >
        It is shown here as soon as it comes. Its gateway sends for it, over HTTP or MQTT:
      </FirstSteps>
    );
  }
  return (
    <FirstSteps title={title} command={`millstream device password ${device.id}${commandFlags(tenant)}`}>
      It cannot log in with a password yet: add a credential here, or from a terminal.
    </FirstSteps>
  );
}
