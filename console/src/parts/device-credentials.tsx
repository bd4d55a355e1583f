/** How a device logs in: its credentials by type, and the ways to add, switch off and remove them. */
import type { ComponentChildren } from "preact";
import {
  type Credential,
  putCredentials,
  type Secret,
  type StoredCredentials,
  withEnabled,
  withoutSecret,
} from "../api/credentials";
import type { JsonObject } from "../api/decode";
import { moment } from "../format";
import { AddCredential } from "./add-credential";
import { ConfirmButton } from "./confirm";
import { Notice } from "./notice";

export const TYPE_NAMES: Readonly<Record<string, string>> = {
  "hashed-password": "Password",
  "x509-cert": "Certificate",
  rpk: "Public key",
  psk: "Shared key",
};

interface CredentialsProps {
  tenant: string;
  device: string;
  stored: StoredCredentials;
  onChanged: () => void;
}

export function DeviceCredentials(props: CredentialsProps): ComponentChildren {
  const { tenant, device, stored, onChanged } = props;
  const put = (documents: JsonObject[]): Promise<void> => putCredentials(tenant, device, documents, stored.version);
  return (
    <section class="card" aria-labelledby="credentials">
      <div class="card-tools">
        <h2 id="credentials">Credentials</h2>
        <span class="spring" />
        <AddCredential device={device} credentials={stored.credentials} put={put} onAdded={onChanged} />
      </div>
      {stored.credentials.length === 0 ? (
        <Notice tone="quiet" title="This device cannot log in by itself">
          Add a password, a certificate or a key; or let a gateway send for it.
        </Notice>
      ) : (
        <ul class="credentials">
          {stored.credentials.map((credential) => (
            <CredentialItem
              key={`${credential.type} ${credential.auth_id}`}
              credential={credential}
              all={stored.credentials}
              put={put}
              onChanged={onChanged}
            />
          ))}
        </ul>
      )}
    </section>
  );
}

function CredentialItem(props: {
  credential: Credential;
  all: readonly Credential[];
  put: (documents: JsonObject[]) => Promise<void>;
  onChanged: () => void;
}): ComponentChildren {
  const { credential, all, put, onChanged } = props;
  const { type, auth_id, enabled, secrets } = credential;
  const name = `${TYPE_NAMES[type] ?? type} of ${auth_id}`;
  return (
    <li aria-label={name}>
      <div class="credential-head">
        <div>
          <strong>{auth_id}</strong> <span class="tag">{type}</span>
          {!enabled && <span class="state warning">disabled</span>}
        </div>
        <ConfirmButton
          role="admin"
          label={enabled ? "Disable" : "Enable"}
          title={enabled ? `Disable the login of ${auth_id}?` : `Enable the login of ${auth_id}?`}
          tone="plain"
          act={() => put(withEnabled(all, credential, !enabled))}
          onDone={onChanged}
        >
          {enabled
            ? "Logins with it will be refused, and connections that were opened with it closed."
            : "Logins with it will be accepted again."}
        </ConfirmButton>
      </div>
      <ul>
        {secrets.map((secret) => (
          <li key={secret.id}>
            <span>
              {TYPE_NAMES[type] ?? type}
              {secret.algorithm !== null && ` (${secret.algorithm})`}
              <small>{factsOf(secret)}</small>
            </span>
            <ConfirmButton
              role="admin"
              label="Remove"
              title={`Remove this ${(TYPE_NAMES[type] ?? "secret").toLowerCase()} of ${auth_id}?`}
              tone="stop"
              act={() => put(withoutSecret(all, credential, secret.id))}
              onDone={onChanged}
            >
              Logins with it will be refused, and connections that were opened with it closed. This cannot be taken
              back.
            </ConfirmButton>
          </li>
        ))}
      </ul>
    </li>
  );
}

function factsOf({ id, enabled, not_before, not_after, comment }: Secret): string {
  const facts = [`id ${id}`];
  if (!enabled) facts.push("disabled");
  if (not_before !== null) facts.push(`from ${moment(Date.parse(not_before))}`);
  if (not_after !== null) facts.push(`until ${moment(Date.parse(not_after))}`);
  if (comment !== null) facts.push(comment);
  return facts.join(" · ");
}
