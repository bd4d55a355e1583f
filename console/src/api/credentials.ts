/** `/v1/credentials`: how a device logs in. Passwords and shared keys are written and never read. */
import {
  array,
  boolean,
  type Decoder,
  type JsonObject,
  json,
  nullable,
  object,
  plainObject,
  string,
  withDefault,
} from "./decode";
import { devicePath } from "./devices";
import { ask, change } from "./http";

export type CredentialType = "hashed-password" | "x509-cert" | "rpk" | "psk";

export interface Secret {
  id: string;
  enabled: boolean;
  not_before: string | null;
  not_after: string | null;
  comment: string | null;
  /** Of public keys only. */
  algorithm: string | null;
}

export interface Credential {
  type: string;
  auth_id: string;
  enabled: boolean;
  secrets: Secret[];
  ext: JsonObject;
}

export interface StoredCredentials {
  credentials: Credential[];
  version: string;
}

const secret = object({
  id: string,
  enabled: withDefault(boolean, true),
  "not-before": nullable(string),
  "not-after": nullable(string),
  comment: nullable(string),
  algorithm: nullable(string),
});

const credential = object({
  type: string,
  "auth-id": string,
  enabled: withDefault(boolean, true),
  secrets: array(secret),
  ext: withDefault((value, path) => plainObject(json(value, path), path) as JsonObject, {}),
});

export const decodeCredentials: Decoder<Credential[]> = (value, path) =>
  array(credential)(value, path).map(({ type, "auth-id": auth_id, enabled, secrets, ext }) => ({
    type,
    auth_id,
    enabled,
    ext,
    secrets: secrets.map(({ "not-before": not_before, "not-after": not_after, ...rest }) => ({
      ...rest,
      not_before,
      not_after,
    })),
  }));

export async function fetchCredentials(tenant: string, device: string): Promise<StoredCredentials> {
  const { value, headers } = await ask({ path: devicePath("credentials", tenant, device), tenant }, decodeCredentials);
  return { credentials: value, version: headers.get("ETag") ?? "" };
}

/** Replaces all credentials of a device if they still have the version that was read. */
export async function putCredentials(
  tenant: string,
  device: string,
  documents: readonly JsonObject[],
  version: string | null,
): Promise<void> {
  const call = { path: devicePath("credentials", tenant, device), tenant, method: "PUT", body: documents } as const;
  await change(version === null ? call : { ...call, ifMatch: version });
}

/** What keeps a credential as it is: its secrets are named by their ids. */
export function keptDocument({ type, auth_id, enabled, secrets, ext }: Credential): JsonObject {
  return {
    type,
    "auth-id": auth_id,
    enabled,
    ...(Object.keys(ext).length === 0 ? {} : { ext }),
    secrets: secrets.map((one) => keptSecret(one)),
  };
}

function keptSecret({ id, enabled, not_before, not_after, comment }: Secret): JsonObject {
  const document: JsonObject = { id, enabled };
  if (not_before !== null) document["not-before"] = not_before;
  if (not_after !== null) document["not-after"] = not_after;
  if (comment !== null) document.comment = comment;
  return document;
}

/** What a person types of a new secret. */
export interface NewSecret {
  type: CredentialType;
  /** May be empty where a certificate says it. */
  auth_id: string;
  /** Password, key or certificate, by the type; may be empty for a certificate that is named by its subject. */
  material: string;
  comment: string;
}

/** The credentials with one more secret: of the credential of this type and auth-id, or of a new one. */
export function withSecret(credentials: readonly Credential[], added: NewSecret): JsonObject[] {
  const { type, auth_id, material, comment } = added;
  const documents = credentials.map((one) => keptDocument(one));
  if (type === "x509-cert") {
    const named: JsonObject =
      material === "" ? { "auth-id": auth_id, secrets: [comment === "" ? {} : { comment }] } : { cert: material };
    return [...documents, { type, ...named }];
  }
  const document: JsonObject = { ...secretOf(type, material), ...(comment === "" ? {} : { comment }) };
  const at = credentials.findIndex((one) => one.type === type && one.auth_id === auth_id);
  if (at < 0) return [...documents, { type, "auth-id": auth_id, secrets: [document] }];
  return documents.map((one, index) => {
    return index === at && Array.isArray(one.secrets) ? { ...one, secrets: [...one.secrets, document] } : one;
  });
}

function secretOf(type: CredentialType, material: string): JsonObject {
  if (type === "hashed-password") return { "pwd-plain": material };
  if (type === "rpk" && material.includes("BEGIN CERTIFICATE")) return { cert: material };
  // A key in PEM is the base64 of its DER between two lines.
  return { key: material.replaceAll(/-----[^-]*-----|\s/g, "") };
}

/** The credentials with one switched on or off. */
export function withEnabled(credentials: readonly Credential[], changed: Credential, enabled: boolean): JsonObject[] {
  return credentials.map((one) => keptDocument(one === changed ? { ...one, enabled } : one));
}

/** The credentials without one secret, and without its credential if that was its last. */
export function withoutSecret(credentials: readonly Credential[], of: Credential, id: string): JsonObject[] {
  return credentials.flatMap((one) => {
    if (one !== of) return [keptDocument(one)];
    const secrets = one.secrets.filter((secret) => secret.id !== id);
    return secrets.length === 0 ? [] : [keptDocument({ ...one, secrets })];
  });
}
