/** Buttons that create a subscription and change one. */
import type { ComponentChildren } from "preact";
import { changeSubscription, createSubscription, type Subscription } from "../api/subscriptions";
import {
  changedMembers,
  NEW_SUBSCRIPTION,
  newSubscription,
  SUBSCRIPTION_FAULTS,
  type SubscriptionDraft,
  subscriptionDraft,
} from "../forms/subscription-draft";
import { DraftDialog } from "./draft-dialog";
import { SubscriptionFields } from "./subscription-fields";

export function CreateSubscription(props: {
  tenant: string;
  types: string[];
  onMade: (id: string) => void;
}): ComponentChildren {
  const { tenant, types, onMade } = props;
  return (
    <DraftDialog<SubscriptionDraft>
      role="writer"
      label="Create a subscription"
      tone="primary"
      title="Create a subscription"
      submit="Create"
      refusal="The subscription was not created"
      initial={NEW_SUBSCRIPTION}
      fields={fieldsOf}
      rules={() => SUBSCRIPTION_FAULTS}
      act={async (draft) => {
        onMade(await createSubscription(tenant, newSubscription(draft)));
      }}
    >
      {(form) => <SubscriptionFields form={form} types={types} />}
    </DraftDialog>
  );
}

/** The draft of a change, with the subscription as it was when the form was opened: what others change meanwhile stays. */
interface Change extends SubscriptionDraft {
  before: Subscription;
}

export function EditSubscription(props: {
  tenant: string;
  types: string[];
  subscription: Subscription;
  onChanged: () => void;
}): ComponentChildren {
  const { tenant, types, subscription, onChanged } = props;
  return (
    <DraftDialog<Change>
      role="writer"
      label="Edit"
      tone="plain"
      title="Change the subscription"
      submit="Save"
      refusal="The subscription was not changed"
      initial={{ ...subscriptionDraft(subscription), before: subscription }}
      fields={fieldsOf}
      rules={() => SUBSCRIPTION_FAULTS}
      act={async (draft) => {
        const body = changedMembers(draft, draft.before);
        if (Object.keys(body).length > 0) await changeSubscription(tenant, draft.before.id, body);
        onChanged();
      }}
    >
      {(form) => <SubscriptionFields form={form} types={types} />}
    </DraftDialog>
  );
}

function fieldsOf({ entities, target, user }: SubscriptionDraft): string[] {
  const ofTarget = {
    http: [],
    mqtt: ["topic", "user", "password"],
    kafka: ["topic", "key", "user", "password", "tls", ...(user.trim() !== "" ? ["mechanism"] : [])],
  };
  const always = ["description", "entities", "conditionAttrs", "q", "jexl", "url", "attrs", "throttling", "expires"];
  return [...always, ...ofTarget[target], ...entities.map((_, index) => `${index}.id`)];
}
