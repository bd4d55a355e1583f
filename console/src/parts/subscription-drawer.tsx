/** One subscription in detail: how delivery goes, what it says, and the switch that lets it sleep. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import { fetchSubscription, setStatus, type Subscription } from "../api/subscriptions";
import { bytes, counted, duration, whole } from "../format";
import { deliveryState, subjectText } from "../live/delivery";
import { latest, usePolled } from "../live/remote";
import { Drawer } from "./drawer";
import { Notice, RemoteNotice, sentence } from "./notice";
import { DeliveryBadge, When } from "./subscription-table";

const PERIOD_MS = 1_000;

export function SubscriptionDrawer(props: { tenant: string; id: string; onClose: () => void }): ComponentChildren {
  const { tenant, id, onClose } = props;
  const [changes, setChanges] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchSubscription(tenant, id).then((found) => ({ found, changes })), [tenant, id, changes]),
    PERIOD_MS,
  );
  const subscription = latest(remote)?.found ?? null;
  return (
    <Drawer
      title={subscription === null || subscription.description === "" ? "Subscription" : subscription.description}
      subtitle={<code>{id}</code>}
      onClose={onClose}
    >
      <RemoteNotice remote={remote} what="this subscription" />
      {subscription !== null && (
        <>
          <Switch
            tenant={tenant}
            subscription={subscription}
            onChanged={() => {
              setChanges((before) => before + 1);
            }}
          />
          <Facts subscription={subscription} />
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

function Switch(props: { tenant: string; subscription: Subscription; onChanged: () => void }): ComponentChildren {
  const { tenant, subscription, onChanged } = props;
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
          <button
            key={index}
            type="button"
            aria-disabled={work.kind === "asking"}
            onClick={() => {
              if (work.kind !== "asking") void change(to);
            }}
          >
            {label}
          </button>
        ))}
      </div>
      {work.kind === "failed" && (
        <Notice tone="error" title="The subscription was not changed">
          {sentence(work.reason)}
        </Notice>
      )}
    </>
  );
}

function Facts({ subscription }: { subscription: Subscription }): ComponentChildren {
  const { targetKind, target, throttling, expires, delivery, whole: all } = subscription;
  const { timesSent, lastNotification, lastSuccess, lastSuccessCode, lastFailure, lastFailureReason, queue } = delivery;
  const now = Date.now();
  return (
    <>
      <dl class="fact-list plain">
        <Fact name="About">{subjectText(subscription)}</Fact>
        <Fact name="Tells">
          {target} <span class="quiet">({targetKind})</span>
        </Fact>
        <Fact name="Sent">
          {counted(timesSent, "notification")}, the last <When at={lastNotification} now={now} />
        </Fact>
        <Fact name="Last success">
          <When at={lastSuccess} now={now} />
          {lastSuccessCode !== null && `, status ${lastSuccessCode}`}
        </Fact>
        <Fact name="Last failure">
          <When at={lastFailure} now={now} />
          {lastFailureReason !== null && `: ${lastFailureReason}`}
        </Fact>
        <Fact name="Failures in a row">
          {whole(delivery.failsCounter)}
          {delivery.maxFailsLimit !== null && `; gives up after ${whole(delivery.maxFailsLimit)}`}
        </Fact>
        {queue !== null && (
          <Fact name="Queue">
            {counted(queue.length, "notification")}, {bytes(queue.bytes)}; {whole(queue.dropped)} dropped
            {queue.held && "; the latest change is held back by throttling"}
          </Fact>
        )}
        {throttling !== null && throttling > 0 && <Fact name="At most">one every {duration(throttling)}</Fact>}
        {expires !== null && (
          <Fact name="Expires">
            <When at={expires} now={now} />
          </Fact>
        )}
      </dl>
      <details class="as-json">
        <summary>As JSON</summary>
        <pre tabIndex={0}>{JSON.stringify(all, null, 2)}</pre>
      </details>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): ComponentChildren {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
