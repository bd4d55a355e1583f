/** The registration of a device in a form: of a new one, or of one that is to be changed. */
import type { ComponentChildren } from "preact";
import type { Device } from "../api/devices";
import type { JsonObject } from "../api/decode";
import { Field, textOf } from "./form-dialog";

/** `device` is to be changed; null: it is new. */
export function DeviceFields({ device }: { device: Device | null }): ComponentChildren {
  return (
    <>
      <Field label="Gateways" hint="that may act for it">
        <input name="via" placeholder="none, or gateway-1" defaultValue={device?.via.join(", ")} {...PLAIN} />
      </Field>
      <Field label="Gateway groups" hint="that may act for it">
        <input name="viaGroups" placeholder="none" defaultValue={device?.via_groups.join(", ")} {...PLAIN} />
      </Field>
      <Field label="Member of" hint="groups of gateways">
        <input name="memberOf" placeholder="none" defaultValue={device?.member_of.join(", ")} {...PLAIN} />
      </Field>
      <JsonField
        name="defaults"
        label="Defaults"
        hint="of its messages"
        of={device?.defaults}
        placeholder={'{"content-type": "application/json"}'}
      />
      <JsonField
        name="ext"
        label="Extensions"
        hint="mapping, limits, your own"
        of={device?.ext}
        placeholder={'{"hall": "east", "context": {"type": "Lamp"}}'}
      />
    </>
  );
}

const PLAIN = { spellcheck: false, autocomplete: "off", autocapitalize: "off" } as const;

function JsonField(props: {
  name: string;
  label: string;
  hint: string;
  of: JsonObject | undefined;
  placeholder: string;
}): ComponentChildren {
  const { name, label, hint, of, placeholder } = props;
  const text = of === undefined || Object.keys(of).length === 0 ? "" : JSON.stringify(of, null, 2);
  return (
    <label class="tall">
      <span>
        {label} <small>{hint}, JSON</small>
      </span>
      <textarea
        name={name}
        rows={Math.min(12, Math.max(2, text.split("\n").length))}
        spellcheck={false}
        placeholder={placeholder}
        defaultValue={text}
      />
    </label>
  );
}

/** The document of a device as the form has it; `before` keeps what the form does not show. */
export function documentOf(form: FormData, before: JsonObject): JsonObject {
  const document: JsonObject = { ...before };
  const put = (name: string, value: JsonObject | string[], isEmpty: boolean): void => {
    if (isEmpty) Reflect.deleteProperty(document, name);
    else document[name] = value;
  };
  for (const name of ["via", "viaGroups", "memberOf"]) {
    const names = textOf(form, name)
      .split(/[\s,]+/)
      .filter((part) => part !== "");
    put(name, names, names.length === 0);
  }
  for (const name of ["defaults", "ext"]) {
    const object = objectOf(name, textOf(form, name));
    put(name, object, Object.keys(object).length === 0);
  }
  return document;
}

function objectOf(name: string, text: string): JsonObject {
  if (text === "") return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Error(`${name} is no JSON (${cause instanceof Error ? cause.message : String(cause)})`, { cause });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Error(`${name} is no JSON object; write {"name": value}`);
  }
  return value as JsonObject;
}
