/** An attribute while it is being typed: how its value is entered, and the value that comes of it. */
import { type Attribute, pointOf } from "../api/entities";
import type { TypedValue } from "../api/entity-changes";
import type { Json } from "../api/decode";
import { FieldError } from "./fault";

export type ValueKind = "number" | "text" | "boolean" | "place" | "json";

/** Name and NGSI type of each kind. */
export const KINDS: Readonly<Record<ValueKind, { label: string; type: string }>> = {
  number: { label: "Number", type: "Number" },
  text: { label: "Text", type: "Text" },
  boolean: { label: "True or false", type: "Boolean" },
  place: { label: "Place", type: "geo:json" },
  json: { label: "JSON", type: "StructuredValue" },
};

export interface AttributeDraft {
  name: string;
  kind: ValueKind;
  type: string;
  /** A number, a text or JSON as it is typed; each kind keeps its own. */
  number: string;
  text: string;
  json: string;
  flag: boolean;
  latitude: string;
  longitude: string;
}

export const NEW_ATTRIBUTE: AttributeDraft = {
  name: "",
  kind: "number",
  type: KINDS.number.type,
  number: "",
  text: "",
  json: "",
  flag: true,
  latitude: "",
  longitude: "",
};

export function draftOf(name: string, attribute: Attribute): AttributeDraft {
  const { type, value } = attribute;
  const draft = { ...NEW_ATTRIBUTE, name, type };
  const point = pointOf(attribute);
  if (point !== null) return { ...draft, kind: "place", longitude: String(point[0]), latitude: String(point[1]) };
  if (typeof value === "number") return { ...draft, kind: "number", number: String(value) };
  if (typeof value === "string") return { ...draft, kind: "text", text: value };
  if (typeof value === "boolean") return { ...draft, kind: "boolean", flag: value };
  return { ...draft, kind: "json", json: JSON.stringify(value, null, 2) };
}

/** The draft with another kind of value. The type goes with the kind, unless somebody has given one of their own. */
export function withKind(draft: AttributeDraft, kind: ValueKind): AttributeDraft {
  const isCommon = Object.values(KINDS).some(({ type }) => type === draft.type);
  return { ...draft, kind, type: isCommon || draft.type === "" ? KINDS[kind].type : draft.type };
}

/** Reads the draft. Fields of a {@link FieldError} are `name`, `value`, `latitude` and `longitude`. */
export function typedValue(draft: AttributeDraft): TypedValue {
  return { value: valueOf(draft), type: draft.type.trim() === "" ? KINDS[draft.kind].type : draft.type.trim() };
}

function valueOf(draft: AttributeDraft): Json {
  switch (draft.kind) {
    case "text":
      return draft.text;
    case "boolean":
      return draft.flag;
    case "number":
      return numberOf(draft.number, "value", "a number: write it with a point, such as 21.5");
    case "place": {
      const latitude = degrees(draft.latitude, "latitude", 90);
      return { type: "Point", coordinates: [degrees(draft.longitude, "longitude", 180), latitude] };
    }
    case "json":
      try {
        return JSON.parse(draft.json) as Json;
      } catch (cause) {
        throw new FieldError("value", `this is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
      }
  }
}

function degrees(text: string, field: string, limit: number): number {
  const rule = `a ${field}: write degrees from -${limit} to ${limit}`;
  const value = numberOf(text, field, rule);
  if (Math.abs(value) > limit) throw new FieldError(field, `'${text}' is not ${rule}`);
  return value;
}

function numberOf(text: string, field: string, rule: string): number {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (!Number.isFinite(value)) throw new FieldError(field, `'${text}' is not ${rule}`);
  return value;
}
