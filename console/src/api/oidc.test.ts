import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { beginLogin, CALLBACK_PATH, finishLogin, hostOf, isCallback, LoginFailed, type Provider, renew } from "./oidc";

/** What the provider under test answers, and what it was asked. */
let answer: { status: number; body: unknown } = { status: 200, body: {} };
let asked: URLSearchParams | null = null;

const server = createServer((request, response) => {
  let body = "";
  request.on("data", (piece: Buffer) => (body += piece.toString()));
  request.on("end", () => {
    asked = new URLSearchParams(body);
    response.writeHead(answer.status, { "Content-Type": "application/json" }).end(JSON.stringify(answer.body));
  });
});

let provider: Provider;
const ORIGIN = "http://console.example";

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  provider = {
    issuer,
    authorization_endpoint: `${issuer}/authorize?tenant=a`,
    token_endpoint: `${issuer}/token`,
    client_id: "console",
    scope: "openid offline_access",
  };
});

afterAll(() => {
  server.close();
});

function storage(): Storage & { size: () => number } {
  const kept = new Map<string, string>();
  return {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
    size: () => kept.size,
  } as unknown as Storage & { size: () => number };
}

function jwt(claims: Readonly<Record<string, unknown>>): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part({ alg: "none" })}.${part(claims)}.c2ln`;
}

async function begun(): Promise<{ store: ReturnType<typeof storage>; sent: URLSearchParams }> {
  const store = storage();
  const address = await beginLogin(provider, ORIGIN, "/jobs?job=j1", store);
  return { store, sent: new URL(address).searchParams };
}

function callback(parameters: Readonly<Record<string, string>>): URL {
  return new URL(`${ORIGIN}${CALLBACK_PATH}?${new URLSearchParams(parameters)}`);
}

describe("a login with a provider", () => {
  it("exchanges the code with the verifier of its challenge, and goes back to where it began", async () => {
    const { store, sent } = await begun();
    expect(Object.fromEntries(sent)).toMatchObject({
      tenant: "a",
      response_type: "code",
      client_id: "console",
      redirect_uri: `${ORIGIN}/login`,
      scope: "openid offline_access",
      code_challenge_method: "S256",
    });
    const id_token = jwt({ iss: provider.issuer, nonce: sent.get("nonce"), exp: 4_000_000_000 });
    const access_token = jwt({ iss: provider.issuer, exp: 4_000_000_000 });
    answer = { status: 200, body: { access_token, id_token, refresh_token: "r1", expires_in: 300 } };
    const { grant, back } = await finishLogin(callback({ code: "c", state: sent.get("state") ?? "" }), store);
    expect(back).toBe("/jobs?job=j1");
    expect(grant).toMatchObject({ bearer: access_token, refresh_token: "r1", client_id: "console" });
    expect(Math.abs((grant.expires_ms ?? 0) - Date.now() - 300_000)).toBeLessThan(60_000);
    const verifier = asked?.get("code_verifier") ?? "";
    expect(verifier).toMatch(/^[\w-]{43}$/);
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
    expect(Buffer.from(digest).toString("base64url")).toBe(sent.get("code_challenge"));
    expect(Object.fromEntries(asked ?? [])).toMatchObject({
      grant_type: "authorization_code",
      code: "c",
      redirect_uri: `${ORIGIN}/login`,
    });
    // A code is exchanged once, and so is what belongs to it.
    expect(store.size()).toBe(0);

    const next = jwt({ exp: 4_000_000_000 });
    answer = { status: 200, body: { access_token: next } };
    const renewed = await renew(grant);
    expect(asked?.get("refresh_token")).toBe("r1");
    expect(renewed).toMatchObject({ bearer: next, refresh_token: "r1", expires_ms: 4e12 });
    answer = { status: 200, body: { access_token: "opaque", id_token, expires_in: 60 } };
    await expect(renew(grant)).rejects.toThrow("no access token that the server can read");
    expect(await renew({ ...grant, refresh_token: null })).toBeNull();
  });

  it("is refused with the provider's own words", async () => {
    const { store, sent } = await begun();
    const state = sent.get("state") ?? "";
    const denied = callback({ error: "access_denied", error_description: "not in the group", state });
    await expect(finishLogin(denied, store)).rejects.toThrow("refuses the login: not in the group (access_denied)");

    const again = await begun();
    answer = { status: 400, body: { error: "invalid_grant", error_description: "the code is used up" } };
    const used = callback({ code: "c", state: again.sent.get("state") ?? "" });
    await expect(finishLogin(used, again.store)).rejects.toThrow("refuses the login: the code is used up");
  });

  it("is refused if the answer belongs to another login", async () => {
    const { store } = await begun();
    await expect(finishLogin(callback({ code: "c", state: "x" }), store)).rejects.toThrow("does not belong to this");
    await expect(finishLogin(callback({ code: "c", state: "x" }), store)).rejects.toThrow("has not begun a login");
    const mixed = await begun();
    const other = callback({ code: "c", state: mixed.sent.get("state") ?? "", iss: "https://other.example" });
    await expect(finishLogin(other, mixed.store)).rejects.toThrow("the answer is from https://other.example");
    const wrong = [
      [{ nonce: "x" }, "does not belong to this login"],
      [{ iss: "https://other.example" }, "is from https://other.example instead of"],
    ] as const;
    for (const [claims, reason] of wrong) {
      const { store, sent } = await begun();
      const id_token = jwt({ iss: provider.issuer, nonce: sent.get("nonce"), ...claims });
      answer = { status: 200, body: { access_token: "a", id_token } };
      const address = callback({ code: "c", state: sent.get("state") ?? "" });
      await expect(finishLogin(address, store)).rejects.toThrow(reason);
    }
  });

  it("cannot begin before the server knows the provider's addresses", async () => {
    const unknown = { ...provider, authorization_endpoint: null };
    await expect(beginLogin(unknown, ORIGIN, "/", storage())).rejects.toThrow(LoginFailed);
    expect(hostOf(unknown)).toMatch(/^127\.0\.0\.1:\d+$/);
  });

  it.each([
    ["/login?code=c&state=s", true],
    ["/login?error=access_denied", true],
    ["/login", false],
    ["/query?code=c", false],
  ])("comes back to %s: %s", (address, is) => {
    expect(isCallback(new URL(address, ORIGIN))).toBe(is);
  });
});
