/** One bucket: its figures, its keys in order, and the value of one of them. */
import type { ComponentChildren } from "preact";
import { useCallback, useContext, useState } from "preact/hooks";
import { hasBucket } from "../api/login";
import { type Bucket, deleteBucket, fetchBucket, fetchKeys, keyText } from "../api/store";
import { bytes, counted, duration, short, whole } from "../format";
import { CallerContext } from "../live/caller";
import { latest, usePolled } from "../live/remote";
import { commandFlags } from "../pages/command-flags";
import { type StoreMover, storeParams, type StorePlace } from "../pages/store-place";
import { follow, href } from "../route";
import { ackOf, hitRatio, percent } from "./buckets-view";
import { ConfirmButton } from "./confirm";
import { FirstSteps } from "./command";
import { DraftInput } from "./draft-input";
import { KeyDrawer } from "./key-drawer";
import { KeyPaging, KeyTable } from "./key-table";
import { Notice, RemoteNotice } from "./notice";
import { Tile } from "./tile";

const PERIOD_MS = 2_000;
/** Pause in typing after which the prefix is applied. */
const SETTLE_MS = 300;
const DELIMITER = "/";

interface BucketViewProps {
  place: StorePlace;
  onMove: StoreMover;
}

export function BucketView(props: BucketViewProps): ComponentChildren {
  const limits = useContext(CallerContext)?.limits ?? null;
  return hasBucket(limits, props.place.bucket) ? <WholeBucket {...props} /> : <PartOfBucket {...props} />;
}

/** Keys of a bucket whose figures the login may not see. */
function PartOfBucket({ place, onMove }: BucketViewProps): ComponentChildren {
  return (
    <>
      <div class="page-head">
        <WayBack tenant={place.tenant} />
        <h1>{place.bucket}</h1>
      </div>
      <Keys place={place} onMove={onMove} />
    </>
  );
}

function WayBack({ tenant }: { tenant: string }): ComponentChildren {
  return (
    <nav aria-label="Way back" class="crumb">
      <a href={href("store", { tenant })} onClick={follow}>
        Store
      </a>
      <span aria-hidden="true">›</span>
    </nav>
  );
}

function WholeBucket({ place, onMove }: BucketViewProps): ComponentChildren {
  const { tenant, bucket: name } = place;
  const remote = usePolled(
    useCallback(() => fetchBucket(tenant, name), [tenant, name]),
    PERIOD_MS,
  );
  const bucket = latest(remote);
  return (
    <>
      <div class="page-head">
        <WayBack tenant={tenant} />
        <h1>{name}</h1>
        {bucket !== null && (
          <>
            <span class="facts">{factsOf(bucket)}</span>
            <span class="spring" />
            <ConfirmButton
              role="admin"
              extent="whole"
              label="Delete bucket"
              title={`Delete ${name}?`}
              tone="stop"
              act={() => deleteBucket(tenant, name)}
              onDone={() => {
                onMove({ bucket: "", prefix: "", start: "", key: null }, "step");
              }}
            >
              {counted(bucket.keys, "key")} with {bytes(bucket.bytes)} will be gone. This cannot be taken back.
            </ConfirmButton>
          </>
        )}
      </div>
      <RemoteNotice remote={remote} what="this bucket" />
      {bucket !== null && <Tiles bucket={bucket} />}
      {bucket?.settings.kind === "cache" && (
        <Notice tone="quiet" title="The keys of a cache are not listed">
          {/^db\d+$/.test(name)
            ? `Redis clients reach them as database ${name.slice(2)}, HTTP clients under /kv/${name}/.`
            : `HTTP clients reach them under /kv/${name}/; Redis clients only those of db0 to db15.`}
        </Notice>
      )}
      {bucket?.settings.kind === "durable" && <Keys place={place} onMove={onMove} />}
    </>
  );
}

function factsOf({ topic, settings }: Bucket): string {
  const facts = [settings.kind];
  if (topic !== null) facts.push(`topic ${topic}`, counted(settings.partitions, "partition"));
  if (settings.ttl_ms !== null) facts.push(`time to live ${duration(settings.ttl_ms / 1000)}`);
  if (settings.kind === "cache") facts.push(settings.policy);
  return facts.join(" · ");
}

function Tiles({ bucket }: { bucket: Bucket }): ComponentChildren {
  const { keys, bytes: held, settings, cache } = bucket;
  const { max_keys, max_bytes, value_max_bytes, writes_per_second } = settings;
  const [size = "", unit = ""] = bytes(held).split(" ");
  const limits = [
    value_max_bytes === null ? "" : `values to ${bytes(value_max_bytes)}`,
    writes_per_second === null ? "" : `${short(writes_per_second)} writes/s`,
  ].filter((limit) => limit !== "");
  return (
    <div class="tiles">
      <Tile label="Keys" value={whole(keys)} {...(max_keys === null ? {} : { share: keys / max_keys })}>
        {max_keys === null ? "no limit" : `${percent(keys / max_keys)} of ${whole(max_keys)}`}
      </Tile>
      <Tile label="Size" value={size} unit={unit} {...(max_bytes === null ? {} : { share: held / max_bytes })}>
        {max_bytes === null ? "no limit" : `${percent(held / max_bytes)} of ${bytes(max_bytes)}`}
      </Tile>
      <Tile label="Hit ratio" value={hitRatio(bucket) ?? "–"}>
        {`${short(cache.hits)} of ${counted(cache.hits + cache.misses, "read")} from memory`}
      </Tile>
      <Tile label="Ack" value={ackOf(bucket) ?? "none"}>
        {[ACKS[ackOf(bucket) ?? ""] ?? "empty after a restart", ...limits].join(" · ")}
      </Tile>
    </div>
  );
}

const ACKS: Readonly<Record<string, string>> = {
  memory: "a crash may lose a write",
  written: "a write survives kill -9",
  synced: "a write survives power loss",
};

function Keys({ place, onMove }: { place: StorePlace; onMove: StoreMover }): ComponentChildren {
  const { tenant, bucket, prefix, view, start, limit } = place;
  const [told, setTold] = useState(0);
  const remote = usePolled(
    useCallback(
      () =>
        fetchKeys(tenant, { bucket, prefix, delimiter: view === "folders" ? DELIMITER : "", start, limit }).then(
          // Another number asks again at once.
          (page) => ({ ...page, told }),
        ),
      [tenant, bucket, prefix, view, start, limit, told],
    ),
    PERIOD_MS,
  );
  const page = latest(remote);
  return (
    <div class={place.key === null ? "store-body wide" : "store-body"}>
      <section class="card cut-corners" aria-label="Keys">
        <KeyFilters place={place} onMove={onMove} />
        <RemoteNotice remote={remote} what="keys" />
        {page?.lines.length === 0 && <Nothing place={place} />}
        {page !== null && page.lines.length > 0 && <KeyTable lines={page.lines} place={place} />}
        {page !== null && (page.lines.length > 0 || start !== "") && (
          <KeyPaging page={page} place={place} onMove={onMove} />
        )}
      </section>
      {place.key !== null && (
        <div class="store-side">
          <KeyDrawer
            key={place.key}
            tenant={tenant}
            bucket={bucket}
            stored={place.key}
            onDeleted={() => {
              setTold((before) => before + 1);
              onMove({ key: null }, "step");
            }}
            onClose={() => {
              onMove({ key: null }, "step");
            }}
          />
        </div>
      )}
    </div>
  );
}

function KeyFilters({ place, onMove }: { place: StorePlace; onMove: StoreMover }): ComponentChildren {
  return (
    <form
      class="key-filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
      }}
    >
      <Folders place={place} />
      <label class="filter">
        <span>Prefix</span>
        <DraftInput
          value={keyText(place.prefix)}
          placeholder="all keys"
          list="key-prefixes"
          settle_ms={SETTLE_MS}
          onCommit={(text) => {
            onMove({ prefix: encodeURIComponent(text), start: "" }, "amend");
          }}
        />
        <datalist id="key-prefixes" />
      </label>
      <button
        type="button"
        aria-pressed={place.view === "folders"}
        title="Show what lies behind the next / as one line"
        onClick={() => {
          onMove({ view: place.view === "folders" ? "all" : "folders", start: "" }, "amend");
        }}
      >
        Folders
      </button>
    </form>
  );
}

/** The folders that the prefix lies in, each a link. */
function Folders({ place }: { place: StorePlace }): ComponentChildren {
  const parts = place.prefix.split(/(?<=%2f)/i).filter((part) => /%2f$/i.test(part));
  const address = (prefix: string): string => href("store", storeParams({ ...place, prefix, start: "", key: null }));
  return (
    <nav class="folders" aria-label="Folders">
      <a href={address("")} onClick={follow}>
        {place.bucket}
      </a>
      {parts.map((part, index) => (
        <a key={index} href={address(parts.slice(0, index + 1).join(""))} onClick={follow}>
          {keyText(part)}
        </a>
      ))}
    </nav>
  );
}

function Nothing({ place }: { place: StorePlace }): ComponentChildren {
  if (place.start !== "") return <Notice tone="quiet" title="This page is beyond the last key" />;
  if (place.prefix !== "") {
    return (
      <Notice tone="quiet" title="No key begins with this">
        Change the prefix above to see others.
      </Notice>
    );
  }
  return (
    <FirstSteps
      title="There are no keys yet"
      command={`echo hello | millstream kv put ${place.bucket} greeting${commandFlags(place.tenant)}`}
    >
      Store the first one:
    </FirstSteps>
  );
}
