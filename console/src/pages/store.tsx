/** The store: the tenant's buckets, or one with its keys. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { BucketView } from "../parts/bucket-view";
import { BucketsView } from "../parts/buckets-view";
import { go, href } from "../route";
import { type StoreMover, storeParams, storePlace } from "./store-place";

export function StorePage({ params }: { params: URLSearchParams }): ComponentChildren {
  const place = useMemo(() => storePlace(params), [params]);
  const move: StoreMover = (change, how) => {
    go(href("store", storeParams({ ...place, ...change })), how);
  };
  return (
    <div class="page">
      {place.bucket === "" ? (
        <BucketsView place={place} onMove={move} />
      ) : (
        <BucketView key={place.bucket} place={place} onMove={move} />
      )}
    </div>
  );
}
