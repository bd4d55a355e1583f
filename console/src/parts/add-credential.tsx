/** A button that asks for one more way to log in: a password, a certificate or a key. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Credential, type CredentialType, type NewSecret, withSecret } from "../api/credentials";
import type { JsonObject } from "../api/decode";
import { Field, FormDialog, textOf } from "./form-dialog";

const TYPES: readonly (readonly [CredentialType, string])[] = [
  ["hashed-password", "password"],
  ["x509-cert", "client certificate"],
  ["rpk", "public key, for JSON Web Tokens"],
  ["psk", "shared key, stored for DTLS"],
];

export function AddCredential(props: {
  device: string;
  credentials: readonly Credential[];
  put: (documents: JsonObject[]) => Promise<void>;
  onAdded: () => void;
}): ComponentChildren {
  const { device, credentials, put, onAdded } = props;
  const [type, setType] = useState<CredentialType>("hashed-password");
  return (
    <FormDialog
      role="admin"
      label="Add a credential"
      tone="plain"
      submit="Add"
      refusal="The credential was not added"
      act={async (form) => {
        await put(withSecret(credentials, newSecretOf(form, type)));
        onAdded();
      }}
    >
      <Field label="Type">
        <select
          value={type}
          onChange={(event) => {
            const chosen = event.currentTarget.value;
            setType(TYPES.find(([name]) => name === chosen)?.[0] ?? "hashed-password");
          }}
        >
          {TYPES.map(([name, label]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </Field>
      <SecretFields key={type} type={type} device={device} />
      <Field label="Comment">
        <input name="comment" maxLength={256} placeholder="none" autocomplete="off" />
      </Field>
    </FormDialog>
  );
}

function SecretFields({ type, device }: { type: CredentialType; device: string }): ComponentChildren {
  const plain = { spellcheck: false, autocomplete: "off", autocapitalize: "off" } as const;
  const authId = (
    <Field label="Auth-id" hint="it logs in as this">
      <input name="auth_id" required defaultValue={device} {...plain} />
    </Field>
  );
  switch (type) {
    case "hashed-password":
      return (
        <>
          {authId}
          <Field label="Password">
            <input name="material" type="password" required autocomplete="new-password" />
          </Field>
        </>
      );
    case "x509-cert":
      return (
        <>
          <label class="tall">
            <span>
              Certificate <small>PEM, only read</small>
            </span>
            <textarea name="material" rows={6} placeholder="-----BEGIN CERTIFICATE-----" {...plain} />
          </label>
          <Field label="or its subject">
            <input name="auth_id" placeholder="CN=thermometer,O=Example" {...plain} />
          </Field>
        </>
      );
    case "rpk":
      return (
        <>
          {authId}
          <label class="tall">
            <span>
              Public key <small>PEM, or base64 of its DER; or a certificate with it</small>
            </span>
            <textarea name="material" rows={6} required placeholder="-----BEGIN PUBLIC KEY-----" {...plain} />
          </label>
        </>
      );
    case "psk":
      return (
        <>
          {authId}
          <Field label="Key" hint="base64">
            <input name="material" type="password" required autocomplete="new-password" />
          </Field>
        </>
      );
  }
}

function newSecretOf(form: FormData, type: CredentialType): NewSecret {
  const given = form.get("material");
  const [auth_id, comment] = [textOf(form, "auth_id"), textOf(form, "comment")];
  // A password is what was typed, with its spaces.
  const material = type === "hashed-password" && typeof given === "string" ? given : textOf(form, "material");
  if (type === "x509-cert" && material === "" && auth_id === "") {
    throw new Error("there is neither a certificate nor its subject; paste the one or type the other");
  }
  return { type, auth_id, material, comment };
}
