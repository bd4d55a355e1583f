/** The definition of a subscription, and the outcome of its notifications. */
import type { ComponentChildren } from "preact";
import type { Subscription } from "../api/subscriptions";
import { bytes, counted, duration, whole } from "../format";
import { subjectText, unaccounted } from "../live/delivery";
import { When } from "./subscription-table";

export function SubscriptionFacts({ subscription }: { subscription: Subscription }): ComponentChildren {
  const { targetKind, target, throttling, expires, whole: all } = subscription;
  const now = Date.now();
  return (
    <>
      <dl class="fact-list plain">
        <Fact name="About">{subjectText(subscription)}</Fact>
        <Fact name="Tells">
          {target} <span class="quiet">({targetKind})</span>
        </Fact>
        {throttling !== null && throttling > 0 && <Fact name="At most">one every {duration(throttling)}</Fact>}
        {expires !== null && (
          <Fact name="Expires">
            <When at={expires} now={now} />
          </Fact>
        )}
      </dl>
      <h3>Notifications</h3>
      <Outcomes subscription={subscription} now={now} />
      <details class="as-json">
        <summary>As JSON</summary>
        <pre tabIndex={0}>{JSON.stringify(all, null, 2)}</pre>
      </details>
    </>
  );
}

function Outcomes({ subscription, now }: { subscription: Subscription; now: number }): ComponentChildren {
  const { delivery, targetKind } = subscription;
  const { timesSent, ended, queue, lastNotification, lastSuccess, lastFailure } = delivery;
  const rest = unaccounted(delivery);
  return (
    <dl class="fact-list plain">
      <Fact name="Made">
        {counted(timesSent, "notification")}
        {lastNotification !== null && (
          <>
            , the last <When at={lastNotification} now={now} />
          </>
        )}
      </Fact>
      <Fact name="Delivered">{ended === null ? <Unknown /> : whole(ended.delivered)}</Fact>
      <Fact name="Waiting">
        {queue === null ? "none" : `${counted(queue.length, "notification")}, ${bytes(queue.bytes)}`}
        {queue?.held === true && "; the latest change is held back by throttling"}
      </Fact>
      <Fact name="Given up">{ended === null ? <Unknown /> : whole(ended.givenUp)}</Fact>
      <Fact name="Dropped">
        {whole(queue?.dropped ?? 0)}
        {queue !== null && queue.dropped > 0 && ", because the queue was full or the subscription was paused"}
      </Fact>
      {rest !== null && rest > 0 && (
        <Fact name="Unknown">{whole(rest)}, on their way, or lost from memory when the server ended</Fact>
      )}
      <Fact name="Last success">
        {lastSuccess === null ? "none yet" : <When at={lastSuccess} now={now} />}
        {delivery.lastSuccessCode !== null && `, status ${delivery.lastSuccessCode}`}
      </Fact>
      <Fact name="Last failure">
        {lastFailure === null ? "none" : <When at={lastFailure} now={now} />}
        {lastFailure !== null && `: ${delivery.lastFailureReason ?? reasonOf(targetKind)}`}
      </Fact>
      <Fact name="Failures in a row">
        {whole(delivery.failsCounter)}
        {delivery.maxFailsLimit !== null && `; gives up after ${whole(delivery.maxFailsLimit)}`}
      </Fact>
    </dl>
  );
}

function reasonOf(targetKind: string): string {
  if (targetKind.startsWith("mqtt")) return "MQTT tells no reason";
  return targetKind.startsWith("kafka") ? "Kafka tells no reason" : "the reason is unknown";
}

function Unknown(): ComponentChildren {
  return <span class="quiet">unknown: this subscription is older than the counter</span>;
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): ComponentChildren {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
