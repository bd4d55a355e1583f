/** The subscriptions of a tenant, and one in detail. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import { type EntityType, fetchTypes } from "../api/entities";
import { fetchSubscriptions } from "../api/subscriptions";
import { BASE } from "../base";
import { latest, usePolled } from "../live/remote";
import type { EntitiesPlace, Mover } from "../pages/entities-place";
import { FirstSteps } from "./command";
import { Notice, RemoteNotice } from "./notice";
import { Paging } from "./paging";
import { SubscriptionDrawer } from "./subscription-drawer";
import { CreateSubscription } from "./subscription-forms";
import { SubscriptionTable } from "./subscription-table";

const PERIOD_MS = 2_000;
const TYPES_PERIOD_MS = 15_000;
const NO_TYPES: readonly EntityType[] = [];

export function SubscriptionsView(props: {
  place: EntitiesPlace;
  /** The way to other lists. */
  lists: ComponentChildren;
  onMove: Mover;
}): ComponentChildren {
  const { place, lists, onMove } = props;
  const { tenant, page, limit, subscription } = place;
  const [asked, setAsked] = useState(0);
  const remote = usePolled(
    useCallback(
      // Another number asks again at once.
      () => fetchSubscriptions(tenant, limit, (page - 1) * limit).then((found) => ({ ...found, asked })),
      [tenant, limit, page, asked],
    ),
    PERIOD_MS,
  );
  const known = latest(remote);
  const found = usePolled(
    useCallback(() => fetchTypes(tenant), [tenant]),
    TYPES_PERIOD_MS,
  );
  const types = (latest(found) ?? NO_TYPES).map(({ type }) => type);
  const askAgain = (): void => {
    setAsked((before) => before + 1);
  };
  return (
    <>
      <div class="page-head">
        {lists}
        <span class="spring" />
        <CreateSubscription
          tenant={tenant}
          types={types}
          onMade={(id) => {
            askAgain();
            onMove({ subscription: id }, "step");
          }}
        />
      </div>
      {remote.kind === "stalled" && <RemoteNotice remote={remote} what="subscriptions" />}
      <div class={subscription === null ? "entities-body wide" : "entities-body"}>
        <section class="card entities-list" aria-label="Subscriptions">
          {remote.kind !== "stalled" && <RemoteNotice remote={remote} what="subscriptions" />}
          {known !== null && known.subscriptions.length === 0 && <Nothing page={page} tenant={tenant} />}
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
              types={types}
              onChanged={askAgain}
              onDeleted={() => {
                askAgain();
                onMove({ subscription: null }, "amend");
              }}
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

function Nothing({ page, tenant }: { page: number; tenant: string }): ComponentChildren {
  if (page > 1) return <Notice tone="quiet" title="This page is beyond the last subscription" />;
  return (
    <FirstSteps title="There are no subscriptions yet" command={commandOf(tenant)}>
      A subscription has a receiver told when entities change. Create the first one with the button above, or from a
      terminal:
    </FirstSteps>
  );
}

function commandOf(tenant: string): string {
  const header = tenant === "" ? "" : ` \\\n  -H 'Fiware-Service: ${tenant}'`;
  return `curl ${location.origin}${BASE}/v2/subscriptions -H 'Content-Type: application/json'${header} -d '{
  "subject": {"entities": [{"idPattern": ".*", "type": "Room"}]},
  "notification": {"http": {"url": "http://localhost:5050/alarm"}}}'`;
}
