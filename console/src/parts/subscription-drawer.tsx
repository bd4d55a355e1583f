/** One subscription in detail: how delivery goes, what it says, and what can be done about it. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import { deleteSubscription, fetchSubscription, setStatus, type Subscription } from "../api/subscriptions";
import { deliveryState } from "../live/delivery";
import { latest, usePolled } from "../live/remote";
import { ConfirmButton } from "./confirm";
import { Drawer } from "./drawer";
import { Notice, RemoteNotice, sentence } from "./notice";
import { SubscriptionFacts } from "./subscription-facts";
import { EditSubscription } from "./subscription-forms";
import { DeliveryBadge } from "./subscription-table";
import { RoleButton } from "./role-button";

const PERIOD_MS = 1_000;

export function SubscriptionDrawer(props: {
  tenant: string;
  id: string;
  /** Types of entities that there are. */
  types: string[];
  onClose: () => void;
  /** Something that the list shows has changed. */
  onChanged: () => void;
  onDeleted: () => void;
}): ComponentChildren {
  const { tenant, id, types, onClose, onChanged, onDeleted } = props;
  const [changes, setChanges] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchSubscription(tenant, id).then((found) => ({ found, changes })), [tenant, id, changes]),
    PERIOD_MS,
  );
  const subscription = latest(remote)?.found ?? null;
  const changed = (): void => {
    setChanges((before) => before + 1);
    onChanged();
  };
  return (
    <Drawer
      title={subscription === null || subscription.description === "" ? "Subscription" : subscription.description}
      subtitle={<code>{id}</code>}
      onClose={onClose}
    >
      <RemoteNotice remote={remote} what="this subscription" />
      {subscription !== null && (
        <>
          <Switch tenant={tenant} subscription={subscription} onChanged={changed}>
            <EditSubscription tenant={tenant} types={types} subscription={subscription} onChanged={changed} />
          </Switch>
          <SubscriptionFacts subscription={subscription} />
          <div class="drawer-actions">
            <ConfirmButton
              role="writer"
              label="Delete subscription"
              title="Delete this subscription?"
              tone="stop"
              act={() => deleteSubscription(tenant, id)}
              onDone={onDeleted}
            >
              {subscription.target} hears of no further change, and what waits for it is dropped. To stop for a while,
              pause it.
            </ConfirmButton>
          </div>
        </>
      )}
    </Drawer>
  );
}

type Target = "active" | "inactive" | "oneshot";

/** What can be done about a subscription in each status. */
const ACTIONS: Readonly<Record<Subscription["status"], readonly [Target, string][]>> = {
  active: [["inactive", "Pause"]],
  failed: [["inactive", "Pause"]],
  oneshot: [["inactive", "Pause"]],
  inactive: [
    ["active", "Resume"],
    ["oneshot", "Send once"],
  ],
  expired: [],
};

function Switch(props: {
  tenant: string;
  subscription: Subscription;
  onChanged: () => void;
  /** Further buttons. */
  children: ComponentChildren;
}): ComponentChildren {
  const { tenant, subscription, onChanged, children } = props;
  const { id, status } = subscription;
  const [work, setWork] = useState<{ kind: "none" } | { kind: "asking" } | { kind: "failed"; reason: string }>({
    kind: "none",
  });
  const change = async (to: Target): Promise<void> => {
    setWork({ kind: "asking" });
    try {
      await setStatus(tenant, id, to);
      setWork({ kind: "none" });
      onChanged();
    } catch (cause) {
      setWork({ kind: "failed", reason: cause instanceof Error ? cause.message : String(cause) });
    }
  };
  const { detail } = deliveryState(subscription);
  return (
    <>
      <div class="switch">
        <span role="status">
          <DeliveryBadge subscription={subscription} />
        </span>
        <span class="quiet">{detail}</span>
        <span class="spring" />
        {ACTIONS[status].map(([to, label], index) => (
          // The same button for the way there and back, never disabled: it keeps the focus.
          <RoleButton
            key={index}
            role="writer"
            isBusy={work.kind === "asking"}
            onClick={() => {
              void change(to);
            }}
          >
            {label}
          </RoleButton>
        ))}
        {children}
      </div>
      {work.kind === "failed" && (
        <Notice tone="error" title="The subscription was not changed">
          {sentence(work.reason)}
        </Notice>
      )}
    </>
  );
}
