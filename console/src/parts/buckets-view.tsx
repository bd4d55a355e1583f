/** The buckets of a tenant as rows, and the way to make one. */
import type { ComponentChildren } from "preact";
import { useCallback, useContext, useState } from "preact/hooks";
import type { LoginLimits } from "../api/login";
import { type Bucket, fetchBuckets } from "../api/store";
import { bytes, short, whole } from "../format";
import { CallerContext } from "../live/caller";
import { latest, usePolled } from "../live/remote";
import { commandFlags } from "../pages/command-flags";
import { type StoreMover, storeParams, type StorePlace } from "../pages/store-place";
import { follow, href } from "../route";
import { FirstSteps } from "./command";
import { CreateBucket } from "./create-bucket";
import { RemoteNotice } from "./notice";
import { Name } from "./value";

const PERIOD_MS = 2_000;

interface BucketsViewProps {
  place: StorePlace;
  onMove: StoreMover;
}

export function BucketsView(props: BucketsViewProps): ComponentChildren {
  const limits = useContext(CallerContext)?.limits ?? null;
  return limits === null ? <AllBuckets {...props} /> : <KeysOfLimits limits={limits} place={props.place} />;
}

/** The keys that a login is limited to. The server lists buckets to logins without limits only. */
function KeysOfLimits({ limits, place }: { limits: LoginLimits; place: StorePlace }): ComponentChildren {
  return (
    <>
      <div class="page-head">
        <h1>Store</h1>
      </div>
      <section class="card" aria-label="Buckets">
        <p>Your login is good for the keys that begin with one of these, behind their bucket:</p>
        <ul>
          {limits.keys.map((keys) => {
            const slash = keys.indexOf("/");
            const [bucket, prefix] = [keys.slice(0, slash), encodeURIComponent(keys.slice(slash + 1))];
            return (
              <li key={keys}>
                <a href={href("store", storeParams({ ...place, bucket, prefix }))} onClick={follow}>
                  {keys}
                </a>
              </li>
            );
          })}
        </ul>
      </section>
    </>
  );
}

function AllBuckets({ place, onMove }: BucketsViewProps): ComponentChildren {
  const { tenant } = place;
  const [told, setTold] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchBuckets(tenant).then((buckets) => ({ buckets, told })), [tenant, told]),
    PERIOD_MS,
  );
  const buckets = latest(remote)?.buckets ?? null;
  return (
    <>
      <div class="page-head">
        <h1>Store</h1>
        <span class="spring" />
        <CreateBucket
          tenant={tenant}
          known={buckets ?? []}
          onMade={(bucket) => {
            setTold((before) => before + 1);
            onMove({ bucket }, "step");
          }}
        />
      </div>
      <RemoteNotice remote={remote} what="buckets" />
      {buckets !== null && (
        <section class="card cut-corners" aria-label="Buckets">
          {buckets.length === 0 ? <Nothing tenant={tenant} /> : <BucketTable buckets={buckets} place={place} />}
        </section>
      )}
    </>
  );
}

function BucketTable({ buckets, place }: { buckets: readonly Bucket[]; place: StorePlace }): ComponentChildren {
  return (
    <div class="scroll">
      <table class="buckets">
        <thead>
          <tr>
            <th scope="col">Bucket</th>
            <th scope="col">Kind</th>
            <th scope="col" class="number">
              Keys
            </th>
            <th scope="col" class="number" title="Bytes of keys and values">
              Size
            </th>
            <th scope="col">Quota</th>
            <th scope="col" class="number" title="Share of reads that found their value in memory, since the start">
              Hit ratio
            </th>
            <th scope="col" title="What a write that names no level survives">
              Ack
            </th>
            <th scope="col" class="number">
              Partitions
            </th>
          </tr>
        </thead>
        <tbody>
          {buckets.map((bucket) => (
            <tr key={bucket.name}>
              <th scope="row">
                <a href={href("store", storeParams({ ...place, bucket: bucket.name }))} onClick={follow}>
                  <Name text={bucket.name} />
                </a>
              </th>
              <td>{bucket.settings.kind}</td>
              <td class="number">{whole(bucket.keys)}</td>
              <td class="number">{bytes(bucket.bytes)}</td>
              <td>
                <Quota bucket={bucket} />
              </td>
              <td class="number">{hitRatio(bucket) ?? <span class="absent">–</span>}</td>
              <td>{ackOf(bucket) ?? <span class="absent">–</span>}</td>
              <td class="number">
                {bucket.settings.kind === "cache" ? <span class="absent">–</span> : bucket.settings.partitions}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The limit that is nearest, and how much of it is used. */
function Quota({ bucket }: { bucket: Bucket }): ComponentChildren {
  const quota = quotaOf(bucket);
  if (quota === null) return <span class="absent">none</span>;
  return (
    <span class="quota">
      <span class={quota.share >= 1 ? "meter full" : "meter"} aria-hidden="true">
        <i style={{ width: `${Math.min(100, 100 * quota.share)}%` }} />
      </span>
      {percent(quota.share)} of {quota.limit}
    </span>
  );
}

export function quotaOf({ keys, bytes: held, settings }: Bucket): { share: number; limit: string } | null {
  const limits = [];
  if (settings.max_bytes !== null) limits.push({ share: held / settings.max_bytes, limit: bytes(settings.max_bytes) });
  if (settings.max_keys !== null) {
    limits.push({ share: keys / settings.max_keys, limit: `${short(settings.max_keys)} keys` });
  }
  return limits.toSorted((a, b) => b.share - a.share)[0] ?? null;
}

export function percent(share: number): string {
  if (share > 0 && share < 0.01) return "< 1 %";
  return `${Math.floor(100 * share)} %`;
}

/** Null before the first read. */
export function hitRatio({ cache }: Bucket): string | null {
  const reads = cache.hits + cache.misses;
  return reads === 0 ? null : percent(cache.hits / reads);
}

/** Null for a cache, which survives nothing. */
export function ackOf({ settings }: Bucket): string | null {
  return settings.kind === "cache" ? null : settings.ack;
}

function Nothing({ tenant }: { tenant: string }): ComponentChildren {
  const flags = commandFlags(tenant);
  return (
    <FirstSteps
      title="There are no buckets yet"
      command={`millstream kv make things${flags}\necho hello | millstream kv put things greeting${flags}`}
    >
      A bucket holds keys and bytes under each. Make the first one here or from a terminal; a Redis client makes its own
      by its first command.
    </FirstSteps>
  );
}
