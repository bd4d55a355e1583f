/** The fields of a subscription: which changes, whom to tell, and how. */
import type { ComponentChildren } from "preact";
import { EVERY_ENTITY, FORMATS, type RuleDraft, type SubscriptionDraft } from "../forms/subscription-draft";
import type { DraftForm } from "./draft-dialog";
import { SelectField, TextField } from "./fields";
import { SubscriptionText as Text } from "./subscription-text";
import { TargetFields } from "./target-fields";

type Form = DraftForm<SubscriptionDraft>;

export function SubscriptionFields({ form, types }: { form: Form; types: string[] }): ComponentChildren {
  return (
    <>
      <Text form={form} field="description" label="Description" placeholder="Alarms of hot rooms" />
      <fieldset>
        <legend>Which changes</legend>
        <Rules form={form} types={types} />
        <div class="field-row">
          <Text
            form={form}
            field="conditionAttrs"
            label="When these attributes change"
            placeholder="temperature, humidity"
            hint="Empty: any attribute"
          />
          <Text form={form} field="q" label="If (q)" placeholder="temperature>40" hint="Empty: always" />
        </div>
        <Text
          form={form}
          field="jexl"
          label="Condition in JEXL"
          placeholder="temperature - metadata.temperature.previousValue > 0.5"
          hint="Empty: none"
        />
      </fieldset>
      <fieldset>
        <legend>Whom to tell</legend>
        <TargetFields form={form} />
      </fieldset>
      <fieldset>
        <legend>How</legend>
        <How form={form} />
      </fieldset>
    </>
  );
}

function Rules({ form, types }: { form: Form; types: string[] }): ComponentChildren {
  const { entities } = form.draft;
  const change = (changed: RuleDraft[]): void => {
    form.change({ entities: changed });
  };
  const error = form.fault("entities");
  return (
    <>
      {entities.map((rule, index) => (
        <div key={index} class="rule">
          <SelectField
            label="Entities by"
            value={rule.by}
            options={[
              ["idPattern", "pattern of ids"],
              ["id", "id"],
            ]}
            onChange={(by) => {
              // The pattern of all ids is no id, and the other way round.
              const id = rule.id === "" || rule.id === ".*" ? (by === "id" ? "" : ".*") : rule.id;
              change(entities.with(index, { ...rule, by, id }));
            }}
          />
          <TextField
            label={rule.by === "id" ? "Id" : "Pattern"}
            value={rule.id}
            placeholder={rule.by === "id" ? "urn:ngsi-ld:Room:kitchen" : "^urn:ngsi-ld:Room:"}
            error={form.fault(`${index}.id`)}
            onChange={(id) => {
              change(entities.with(index, { ...rule, id }));
            }}
          />
          <TextField
            label={rule.kindBy === "type" ? "Of type" : "Of types like"}
            value={rule.kind}
            placeholder="any type"
            options={types}
            onChange={(kind) => {
              change(entities.with(index, { ...rule, kind }));
            }}
          />
          {entities.length > 1 && (
            <button
              type="button"
              class="link"
              aria-label={`Remove entities ${index + 1}`}
              onClick={() => {
                change(entities.filter((_, at) => at !== index));
              }}
            >
              Remove
            </button>
          )}
        </div>
      ))}
      {error !== undefined && (
        <small class="field-error" role="alert">
          {error}
        </small>
      )}
      <div>
        <button
          type="button"
          class="link"
          onClick={() => {
            change([...entities, EVERY_ENTITY]);
          }}
        >
          Add entities
        </button>
      </div>
    </>
  );
}

function How({ form }: { form: Form }): ComponentChildren {
  return (
    <>
      <div class="field-row">
        <Text form={form} field="attrs" label="Attributes to send" placeholder="temperature" hint="Empty: all" />
        <SelectField
          label="Format"
          value={form.draft.format}
          options={FORMATS.map((format) => [format, format] as const)}
          onChange={(format) => {
            form.change({ format });
          }}
        />
      </div>
      <div class="field-row">
        <Text
          form={form}
          field="throttling"
          label="At most one every"
          placeholder="no limit"
          hint="Seconds; those between are left out"
        />
        <Text form={form} field="expires" label="Expires" type="datetime-local" hint="Empty: never" />
      </div>
      <SelectField
        label="What waits for the receiver"
        value={form.draft.queue}
        options={[
          ["memory", "in memory: gone after a restart"],
          ["durable", "on disk: goes on after a restart"],
        ]}
        onChange={(queue) => {
          form.change({ queue });
        }}
      />
    </>
  );
}
