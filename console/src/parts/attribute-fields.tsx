/** The fields of one attribute: how its value is entered, the value itself, and its NGSI type. */
import type { ComponentChildren } from "preact";
import { type AttributeDraft, KINDS, type ValueKind, withKind } from "../forms/attribute-draft";
import { AreaField, SelectField, TextField } from "./fields";

const KIND_OPTIONS = (Object.keys(KINDS) as ValueKind[]).map((kind) => [kind, KINDS[kind].label] as const);
/** A longer text, or one of several lines, gets a field of several lines. */
const LINE_MAX_CHARS = 60;
const ROWS = 4;

export function AttributeFields(props: {
  draft: AttributeDraft;
  onChange: (draft: AttributeDraft) => void;
  fault: (field: string) => string | undefined;
  /** The name of an attribute that is there does not change. */
  fixedName: boolean;
}): ComponentChildren {
  const { draft, onChange, fault, fixedName } = props;
  return (
    <div class="attribute-fields">
      {!fixedName && (
        <TextField
          label="Name"
          value={draft.name}
          placeholder="temperature"
          error={fault("name")}
          onChange={(name) => {
            onChange({ ...draft, name });
          }}
        />
      )}
      <SelectField
        label="Kind"
        value={draft.kind}
        options={KIND_OPTIONS}
        onChange={(kind) => {
          onChange(withKind(draft, kind));
        }}
      />
      <TextField
        label="Type"
        value={draft.type}
        placeholder={KINDS[draft.kind].type}
        error={fault("type")}
        onChange={(type) => {
          onChange({ ...draft, type });
        }}
      />
      <div class="value-fields">
        <ValueFields draft={draft} onChange={onChange} fault={fault} />
      </div>
    </div>
  );
}

function ValueFields(props: {
  draft: AttributeDraft;
  onChange: (draft: AttributeDraft) => void;
  fault: (field: string) => string | undefined;
}): ComponentChildren {
  const { draft, onChange, fault } = props;
  const error = fault("value");
  switch (draft.kind) {
    case "number":
      return (
        <TextField
          label="Value"
          value={draft.number}
          placeholder="21.5"
          numeric
          error={error}
          onChange={(number) => {
            onChange({ ...draft, number });
          }}
        />
      );
    case "text": {
      const change = (text: string): void => {
        onChange({ ...draft, text });
      };
      return draft.text.length > LINE_MAX_CHARS || draft.text.includes("\n") ? (
        <AreaField label="Value" rows={ROWS} value={draft.text} error={error} onChange={change} />
      ) : (
        <TextField label="Value" value={draft.text} error={error} onChange={change} />
      );
    }
    case "boolean":
      return (
        <SelectField
          label="Value"
          value={draft.flag ? "true" : "false"}
          options={[
            ["true", "true"],
            ["false", "false"],
          ]}
          error={error}
          onChange={(flag) => {
            onChange({ ...draft, flag: flag === "true" });
          }}
        />
      );
    case "place":
      return (
        <>
          <TextField
            label="Latitude"
            value={draft.latitude}
            placeholder="40.4168"
            numeric
            error={fault("latitude") ?? error}
            onChange={(latitude) => {
              onChange({ ...draft, latitude });
            }}
          />
          <TextField
            label="Longitude"
            value={draft.longitude}
            placeholder="-3.7038"
            numeric
            error={fault("longitude")}
            onChange={(longitude) => {
              onChange({ ...draft, longitude });
            }}
          />
        </>
      );
    case "json":
      return (
        <AreaField
          label="Value"
          rows={ROWS}
          value={draft.json}
          placeholder={'{"low": 1, "high": 5}'}
          error={error}
          onChange={(json) => {
            onChange({ ...draft, json });
          }}
        />
      );
  }
}
