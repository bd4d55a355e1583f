import { describe, expect, it } from "vitest";
import { decodeCredentials, withEnabled, withoutSecret, withSecret } from "./credentials";

const STORED = decodeCredentials(
  [
    {
      type: "hashed-password",
      "auth-id": "d",
      enabled: true,
      ext: { hall: "east" },
      secrets: [
        { id: "a", enabled: true, comment: "first" },
        { id: "b", enabled: false, "not-after": "2027-01-01T00:00:00Z" },
      ],
    },
    { type: "rpk", "auth-id": "d", enabled: true, secrets: [{ id: "c", key: "MII=", algorithm: "EC" }] },
  ],
  "answer",
);
const [password, key] = STORED;
const PASSWORDS = {
  type: "hashed-password",
  "auth-id": "d",
  enabled: true,
  ext: { hall: "east" },
  secrets: [
    { id: "a", enabled: true, comment: "first" },
    { id: "b", enabled: false, "not-after": "2027-01-01T00:00:00Z" },
  ],
};
const KEYS = { type: "rpk", "auth-id": "d", enabled: true, secrets: [{ id: "c", enabled: true }] };
const NEW = { auth_id: "d", comment: "" } as const;

describe("credentials that are written back", () => {
  it("keep their secrets by id, and gain one where type and auth-id are the same", () => {
    const added = withSecret(STORED, { ...NEW, type: "hashed-password", material: " hush " });
    expect(added).toEqual([{ ...PASSWORDS, secrets: [...PASSWORDS.secrets, { "pwd-plain": " hush " }] }, KEYS]);
  });

  it.each([
    [
      { type: "psk", auth_id: "d", material: "aGk=", comment: "dtls" },
      { type: "psk", "auth-id": "d", secrets: [{ key: "aGk=", comment: "dtls" }] },
    ],
    [
      {
        type: "rpk",
        auth_id: "e",
        material: "-----BEGIN PUBLIC KEY-----\nMI\nI=\n-----END PUBLIC KEY-----\n",
        comment: "",
      },
      { type: "rpk", "auth-id": "e", secrets: [{ key: "MII=" }] },
    ],
    [
      { type: "rpk", auth_id: "e", material: "-----BEGIN CERTIFICATE-----\nx", comment: "" },
      { type: "rpk", "auth-id": "e", secrets: [{ cert: "-----BEGIN CERTIFICATE-----\nx" }] },
    ],
    [
      { type: "x509-cert", auth_id: "", material: "PEM", comment: "" },
      { type: "x509-cert", cert: "PEM" },
    ],
    [
      { type: "x509-cert", auth_id: "CN=d", material: "", comment: "" },
      { type: "x509-cert", "auth-id": "CN=d", secrets: [{}] },
    ],
  ] as const)("gain %j as a credential of its own", (added, document) => {
    expect(withSecret(STORED, added)).toEqual([PASSWORDS, KEYS, document]);
  });

  it("lose one secret, or the credential with its last", () => {
    if (password === undefined || key === undefined) throw new Error("two were decoded");
    expect(withoutSecret(STORED, password, "a")).toEqual([{ ...PASSWORDS, secrets: [PASSWORDS.secrets[1]] }, KEYS]);
    expect(withoutSecret(STORED, key, "c")).toEqual([PASSWORDS]);
  });

  it("are switched off one by one", () => {
    if (key === undefined) throw new Error("two were decoded");
    expect(withEnabled(STORED, key, false)).toEqual([PASSWORDS, { ...KEYS, enabled: false }]);
  });
});
