/** A text field of a subscription's form. */
import type { ComponentChildren } from "preact";
import type { SubscriptionDraft } from "../forms/subscription-draft";
import type { DraftForm } from "./draft-dialog";
import { TextField } from "./fields";

export function SubscriptionText(props: {
  form: DraftForm<SubscriptionDraft>;
  field: Exclude<keyof SubscriptionDraft, "entities" | "target" | "tls" | "queue">;
  label: string;
  placeholder?: string;
  hint?: string;
  type?: "text" | "password" | "datetime-local";
}): ComponentChildren {
  const { form, field, ...look } = props;
  return (
    <TextField
      {...look}
      value={form.draft[field]}
      error={form.fault(field)}
      onChange={(text) => {
        form.change({ [field]: text });
      }}
    />
  );
}
