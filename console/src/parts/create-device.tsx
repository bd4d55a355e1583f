/** A button that asks for the id and the registration of a device, and registers it; with a password if one is given. */
import type { ComponentChildren } from "preact";
import { createDevice } from "../api/devices";
import { putCredentials } from "../api/credentials";
import { DeviceFields, documentOf } from "./device-form";
import { Field, FormDialog, textOf } from "./form-dialog";

export function CreateDevice({ tenant, onMade }: { tenant: string; onMade: (id: string) => void }): ComponentChildren {
  const create = async (form: FormData): Promise<void> => {
    const [id, password] = [textOf(form, "id"), form.get("password")];
    await createDevice(tenant, id, documentOf(form, {}));
    if (typeof password === "string" && password !== "") {
      const credential = { type: "hashed-password", "auth-id": id, secrets: [{ "pwd-plain": password }] };
      try {
        await putCredentials(tenant, id, [credential], null);
      } catch (cause) {
        const why = cause instanceof Error ? cause.message : String(cause);
        throw new Error(`the device is registered, its password is not: ${why}`, { cause });
      }
    }
    onMade(id);
  };
  return (
    <FormDialog
      role="admin"
      label="Create a device"
      tone="primary"
      submit="Create"
      refusal="Not done as asked"
      act={create}
    >
      <Field label="Id" hint="a-z A-Z 0-9 - _ . :">
        <input name="id" required spellcheck={false} autocomplete="off" autocapitalize="off" />
      </Field>
      <Field label="Password" hint="other logins later">
        <input name="password" type="password" placeholder="none" autocomplete="new-password" />
      </Field>
      <DeviceFields device={null} />
    </FormDialog>
  );
}
