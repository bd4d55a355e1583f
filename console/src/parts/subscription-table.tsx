/** Subscriptions as rows: what each is about, whom it tells, and how that goes. */
import type { ComponentChildren } from "preact";
import type { Delivery, Subscription } from "../api/subscriptions";
import { ago, bytes, whole } from "../format";
import { deliveryState, subjectText } from "../live/delivery";

export function SubscriptionTable(props: {
  subscriptions: readonly Subscription[];
  selected: string | null;
  onSelect: (id: string) => void;
}): ComponentChildren {
  const { subscriptions, selected, onSelect } = props;
  const now = Date.now();
  return (
    <div class="scroll">
      <table class="entities subscriptions">
        <thead>
          <tr>
            <th scope="col">Subscription</th>
            <th scope="col">Delivery</th>
            <th scope="col">About</th>
            <th scope="col">Tells</th>
            <th scope="col" class="number" title="Notifications that its changes have led to">
              Made
            </th>
            <th scope="col" class="number" title="Taken by the receiver">
              Delivered
            </th>
            <th scope="col" class="number" title="Still to be delivered">
              Waiting
            </th>
            <th scope="col" class="number" title="Given up after their time, or dropped from the queue">
              Lost
            </th>
            <th scope="col">Last success</th>
            <th scope="col">Last failure</th>
          </tr>
        </thead>
        <tbody>
          {subscriptions.map((subscription) => (
            <Row
              key={subscription.id}
              subscription={subscription}
              selected={subscription.id === selected}
              now={now}
              onSelect={onSelect}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row(props: {
  subscription: Subscription;
  selected: boolean;
  now: number;
  onSelect: (id: string) => void;
}): ComponentChildren {
  const { subscription, selected, now, onSelect } = props;
  const { id, description, target, delivery } = subscription;
  const about = subjectText(subscription);
  return (
    <tr
      aria-current={selected ? "true" : undefined}
      onClick={() => {
        onSelect(id);
      }}
    >
      <th scope="row">
        <button
          type="button"
          class="row-button"
          onClick={(event) => {
            event.stopPropagation();
            onSelect(id);
          }}
        >
          <span class="id">
            <span class="cut">{description === "" ? id : description}</span>
            {description !== "" && <span class="id-start">{id}</span>}
          </span>
        </button>
      </th>
      <td>
        <DeliveryBadge subscription={subscription} />
      </td>
      <td class="cut" title={about}>
        {about}
      </td>
      <td class="cut" title={target}>
        {target}
      </td>
      <td class="number">{whole(delivery.timesSent)}</td>
      <td class="number">
        <Count count={delivery.ended?.delivered ?? null} />
      </td>
      <td class="number" title={delivery.queue === null ? undefined : bytes(delivery.queue.bytes)}>
        {whole(delivery.queue?.length ?? 0)}
      </td>
      <td class="number">
        <Count count={lost(delivery)} />
      </td>
      <td>
        <When at={delivery.lastSuccess} now={now} />
      </td>
      <td title={delivery.lastFailureReason ?? undefined}>
        <When at={delivery.lastFailure} now={now} />
      </td>
    </tr>
  );
}

/** Null if the server does not count what was given up. */
function lost({ ended, queue }: Delivery): number | null {
  return ended === null ? null : ended.givenUp + (queue?.dropped ?? 0);
}

function Count({ count }: { count: number | null }): ComponentChildren {
  if (count !== null) return <>{whole(count)}</>;
  return (
    <span class="absent" aria-label="unknown" title="Unknown: the subscription is older than the counter">
      –
    </span>
  );
}

export function DeliveryBadge({ subscription }: { subscription: Subscription }): ComponentChildren {
  const { tone, word, detail } = deliveryState(subscription);
  return (
    <span class={`state ${tone}`} title={detail === "" ? undefined : detail}>
      {word}
    </span>
  );
}

export function When({ at, now }: { at: string | null; now: number }): ComponentChildren {
  if (at === null) return <span class="absent">–</span>;
  return (
    <time dateTime={at} title={at}>
      {ago(Date.parse(at), now)}
    </time>
  );
}
