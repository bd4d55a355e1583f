/** The subscriptions of a tenant, and one in detail. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchSubscriptions } from "../api/subscriptions";
import { latest, usePolled } from "../live/remote";
import type { EntitiesPlace, Mover } from "../pages/entities-place";
import { Notice, RemoteNotice } from "./notice";
import { Paging } from "./paging";
import { SubscriptionDrawer } from "./subscription-drawer";
import { SubscriptionTable } from "./subscription-table";

const PERIOD_MS = 2_000;

export function SubscriptionsView(props: {
  place: EntitiesPlace;
  /** The way to other lists. */
  lists: ComponentChildren;
  onMove: Mover;
}): ComponentChildren {
  const { place, lists, onMove } = props;
  const { tenant, page, limit, subscription } = place;
  const remote = usePolled(
    useCallback(() => fetchSubscriptions(tenant, limit, (page - 1) * limit), [tenant, limit, page]),
    PERIOD_MS,
  );
  const known = latest(remote);
  return (
    <>
      <div class="page-head">{lists}</div>
      {remote.kind === "stalled" && <RemoteNotice remote={remote} what="subscriptions" />}
      <div class={subscription === null ? "entities-body wide" : "entities-body"}>
        <section class="card entities-list" aria-label="Subscriptions">
          {remote.kind !== "stalled" && <RemoteNotice remote={remote} what="subscriptions" />}
          {known !== null && known.subscriptions.length === 0 && <Nothing page={page} />}
          {known !== null && known.subscriptions.length > 0 && (
            <SubscriptionTable
              subscriptions={known.subscriptions}
              selected={subscription}
              onSelect={(id) => {
                onMove({ subscription: id }, "step");
              }}
            />
          )}
          {known !== null && known.total > 0 && (
            <Paging
              page={page}
              limit={limit}
              shown={known.subscriptions.length}
              total={known.total}
              nouns={["subscription", "subscriptions"]}
              onChange={(change) => {
                onMove(change, "step");
              }}
            />
          )}
        </section>
        <div class="entities-side">
          {subscription !== null && (
            <SubscriptionDrawer
              key={subscription}
              tenant={tenant}
              id={subscription}
              onClose={() => {
                onMove({ subscription: null }, "step");
              }}
            />
          )}
        </div>
      </div>
    </>
  );
}

function Nothing({ page }: { page: number }): ComponentChildren {
  if (page > 1) return <Notice tone="quiet" title="This page is beyond the last subscription" />;
  return (
    <Notice tone="quiet" title="There are no subscriptions yet">
      Applications create them with <code>POST /v2/subscriptions</code>, to be told when entities change.
    </Notice>
  );
}
