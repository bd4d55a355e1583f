/** A button that asks for a new entity, field by field or as JSON, and creates it. */
import type { ComponentChildren } from "preact";
import { createEntity } from "../api/entity-changes";
import { type AttributeDraft, NEW_ATTRIBUTE } from "../forms/attribute-draft";
import { entityFaults, entityOf, pastedEntity } from "../forms/entity-draft";
import { AttributeFields } from "./attribute-fields";
import { type DraftForm, DraftDialog } from "./draft-dialog";
import { AreaField, TextField } from "./fields";

interface Draft {
  as: "fields" | "json";
  id: string;
  type: string;
  /** Each with a number of its own, so that removing one does not mix up the others. */
  attributes: (AttributeDraft & { key: number })[];
  json: string;
}

const EXAMPLE = `{
  "id": "urn:ngsi-ld:Room:kitchen",
  "type": "Room",
  "temperature": 21.5,
  "location": {
    "type": "geo:json",
    "value": {"type": "Point", "coordinates": [-3.7038, 40.4168]}
  }
}`;
const JSON_ROWS = 14;
/** Of an entity that is created without a type. */
const TYPE_DEFAULT = "Thing";

export function CreateEntity(props: {
  tenant: string;
  /** Types that there are, to choose from. */
  types: string[];
  onMade: (entity: { id: string; type: string }) => void;
}): ComponentChildren {
  const { tenant, types, onMade } = props;
  return (
    <DraftDialog<Draft>
      role="writer"
      label="Create an entity"
      tone="primary"
      title="Create an entity"
      submit="Create"
      refusal="The entity was not created"
      initial={{ as: "fields", id: "", type: "", attributes: [{ ...NEW_ATTRIBUTE, key: 0 }], json: "" }}
      fields={({ as, attributes }) => (as === "json" ? ["json"] : fieldsOf(attributes.length))}
      rules={({ as, attributes }) => (as === "json" ? [[/./, "json"]] : entityFaults(attributes))}
      act={async (draft) => {
        const entity = draft.as === "json" ? pastedEntity(draft.json) : entityOf(draft);
        await createEntity(tenant, entity);
        const { id, type } = entity;
        onMade({ id: typeof id === "string" ? id : "", type: typeof type === "string" ? type : TYPE_DEFAULT });
      }}
    >
      {(form) => (
        <>
          <div class="segments" role="group" aria-label="Enter it as">
            <Segment form={form} as="fields" label="Form" />
            <Segment form={form} as="json" label="JSON" />
          </div>
          {form.draft.as === "fields" ? <Fields form={form} types={types} /> : <Pasted form={form} />}
        </>
      )}
    </DraftDialog>
  );
}

function fieldsOf(attributes: number): string[] {
  const parts = ["name", "type", "value", "latitude", "longitude"];
  return [
    "id",
    "type",
    ...Array.from({ length: attributes }, (_, index) => parts.map((part) => `${index}.${part}`)).flat(),
  ];
}

function Segment(props: { form: DraftForm<Draft>; as: Draft["as"]; label: string }): ComponentChildren {
  const { form, as, label } = props;
  return (
    <button
      type="button"
      aria-pressed={form.draft.as === as}
      onClick={() => {
        form.change(as === "json" && form.draft.json === "" ? { as, json: written(form.draft) } : { as });
      }}
    >
      {label}
    </button>
  );
}

/** The fields as JSON, to go on with; empty while something in them is wrong. */
function written(draft: Draft): string {
  try {
    return JSON.stringify(entityOf(draft), null, 2);
  } catch {
    return "";
  }
}

function Fields({ form, types }: { form: DraftForm<Draft>; types: string[] }): ComponentChildren {
  const { draft, change, fault } = form;
  const { attributes } = draft;
  return (
    <>
      <div class="field-row ids">
        <TextField
          label="Id"
          value={draft.id}
          placeholder="urn:ngsi-ld:Room:kitchen"
          error={fault("id")}
          onChange={(id) => {
            change({ id });
          }}
        />
        <TextField
          label="Type"
          value={draft.type}
          placeholder={TYPE_DEFAULT}
          options={types}
          error={fault("type")}
          onChange={(type) => {
            change({ type });
          }}
        />
      </div>
      {attributes.map((attribute, index) => (
        <fieldset key={attribute.key}>
          <legend>{attribute.name === "" ? `Attribute ${index + 1}` : attribute.name}</legend>
          <AttributeFields
            draft={attribute}
            onChange={(changed) => {
              change({ attributes: attributes.with(index, { ...changed, key: attribute.key }) });
            }}
            fault={(field) => fault(`${index}.${field}`)}
            fixedName={false}
          />
          <button
            type="button"
            class="link"
            aria-label={`Remove attribute ${index + 1}`}
            onClick={() => {
              change({ attributes: attributes.filter((_, at) => at !== index) });
            }}
          >
            Remove
          </button>
        </fieldset>
      ))}
      <div>
        <button
          type="button"
          onClick={() => {
            const key = Math.max(-1, ...attributes.map((attribute) => attribute.key)) + 1;
            change({ attributes: [...attributes, { ...NEW_ATTRIBUTE, key }] });
          }}
        >
          Add an attribute
        </button>
      </div>
    </>
  );
}

function Pasted({ form }: { form: DraftForm<Draft> }): ComponentChildren {
  return (
    <AreaField
      label="Entity as JSON"
      hint="Each attribute is its bare value, or an object with value, type and metadata."
      rows={JSON_ROWS}
      value={form.draft.json}
      placeholder={EXAMPLE}
      error={form.fault("json")}
      onChange={(json) => {
        form.change({ json });
      }}
    />
  );
}
