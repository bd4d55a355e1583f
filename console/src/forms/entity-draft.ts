/** A new entity while it is being typed, field by field or as JSON. */
import type { Json, JsonObject } from "../api/decode";
import { type AttributeDraft, typedValue } from "./attribute-draft";
import { FieldError, type FaultRule } from "./fault";

export interface EntityDraft {
  id: string;
  type: string;
  attributes: AttributeDraft[];
}

/** The entity in normalized form. Fields of its errors are `id`, `type`, and `0.name`, `0.value` of an attribute. */
export function entityOf({ id, type, attributes }: EntityDraft): JsonObject {
  if (id.trim() === "") throw new FieldError("id", "an entity has an id: write one, such as urn:ngsi-ld:Room:kitchen");
  const entity: JsonObject = { id: id.trim(), ...(type.trim() === "" ? {} : { type: type.trim() }) };
  attributes.forEach((draft, index) => {
    const name = draft.name.trim();
    if (name === "")
      throw new FieldError(`${index}.name`, "an attribute has a name: write one, or remove the attribute");
    if (name in entity) throw new FieldError(`${index}.name`, `'${name}' is taken: give each attribute its own name`);
    try {
      entity[name] = { ...typedValue(draft) };
    } catch (cause) {
      throw cause instanceof FieldError ? new FieldError(`${index}.${cause.field}`, cause.message) : cause;
    }
  });
  return entity;
}

/** The entity that somebody pasted: each attribute normalized, or its bare value. */
export function pastedEntity(text: string): JsonObject {
  let pasted: Json;
  try {
    pasted = JSON.parse(text) as Json;
  } catch (cause) {
    throw new FieldError("json", `this is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
  if (typeof pasted !== "object" || pasted === null || Array.isArray(pasted)) {
    throw new FieldError("json", 'an entity is one object: write it as {"id": "Room1", "type": "Room", …}');
  }
  const attributes = Object.entries(pasted).map(([name, value]) => [name, normalized(name, value)] as const);
  return Object.fromEntries(attributes);
}

function normalized(name: string, value: Json): Json {
  const isWhole = typeof value === "object" && value !== null && !Array.isArray(value) && "value" in value;
  return name === "id" || name === "type" || isWhole ? value : { value };
}

/** The rules that find the field that the server's words are about. */
export function entityFaults(attributes: readonly AttributeDraft[]): FaultRule[] {
  const named = attributes.flatMap(({ name }, index): FaultRule[] => {
    const quoted = `'${name.trim().replace(/[\\^$.|?*+()[\]{}]/g, "\\$&")}'`;
    return name.trim() === ""
      ? []
      : [
          [new RegExp(`^(?:attribute name ${quoted}|${quoted} cannot be an attribute)`), `${index}.name`],
          [new RegExp(`the type of attribute ${quoted}`), `${index}.type`],
          [new RegExp(`attribute ${quoted}`), `${index}.value`],
        ];
  });
  return [...named, [/^entity id|exists already|no member 'id'/, "id"], [/^entity type/, "type"]];
}
