import { describe, expect, it } from "vitest";
import { type CredentialEvent, CredentialStore } from "./credential";
import { type Grant, LoginFailed } from "./oidc";

/** A login with a provider that ends in `in_ms`. */
function grant(bearer: string, in_ms: number, refresh_token: string | null = "again"): Grant {
  const expires_ms = Date.now() + in_ms;
  return { bearer, expires_ms, refresh_token, token_endpoint: "https://id.example/token", client_id: "console" };
}

function storeOf(renewed?: (grant: Grant) => Promise<Grant | null>): {
  store: CredentialStore;
  kept: Map<string, string>;
  told: CredentialEvent[];
} {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
  const store = new CredentialStore(() => storage, renewed);
  const told: CredentialEvent[] = [];
  store.listen((event) => told.push(event));
  return { store, kept, told };
}

describe("the login of a tab", () => {
  it("is a token until it is forgotten", async () => {
    const { store, kept } = storeOf();
    expect(await store.bearer()).toBeNull();
    store.keep({ kind: "token", secret: "s" });
    expect(await store.bearer()).toBe("s");
    store.forget();
    expect([await store.bearer(), kept.size]).toEqual([null, 0]);
  });

  it("that another version has stored is none", async () => {
    const { store, kept } = storeOf();
    for (const stored of ["{", "[]", '{"kind":"token"}', '{"kind":"oidc","grant":{}}']) {
      kept.set("millstream.login", stored);
      expect(await store.bearer()).toBeNull();
    }
  });

  it("is lost with the server's reason, unless there is another one by then", () => {
    const { store, told } = storeOf();
    store.keep({ kind: "token", secret: "new" });
    store.lose("old", "was revoked");
    expect(store.get()).toEqual({ kind: "token", secret: "new" });
    store.lose("new", "was revoked");
    expect(store.get()).toBeNull();
    // Nobody has done anything wrong who had no login.
    store.lose(null, "this listener wants an API token");
    expect(told).toEqual([{ kind: "kept" }, { kind: "lost", reason: "was revoked" }, { kind: "lost", reason: null }]);
  });

  it("that changes meanwhile is what a refused request is sent with", async () => {
    const { store } = storeOf();
    let end: () => void = () => undefined;
    const change = store.during(async () => {
      await new Promise<void>((resolve) => {
        end = resolve;
      });
      store.keep({ kind: "token", secret: "first" });
    });
    const better = store.better(null);
    end();
    await change;
    expect(await better).toBe("first");
    expect(await store.better("first")).toBeNull();
  });
});

describe("the login with a provider", () => {
  it("is renewed once before it ends, however many requests need it", async () => {
    let asked = 0;
    const { store, told } = storeOf(() => {
      asked += 1;
      return Promise.resolve(grant(`token ${asked}`, 3_600_000));
    });
    store.keep({ kind: "oidc", grant: grant("token 0", 1_000) });
    expect(await Promise.all([store.bearer(), store.bearer()])).toEqual(["token 1", "token 1"]);
    expect(await store.bearer()).toBe("token 1");
    expect(asked).toBe(1);
    expect(await store.better("token 1")).toBe("token 2");
    expect(told).toEqual([{ kind: "kept" }]);
  });

  it("is over when the provider refuses to renew it, and stays while the provider cannot be reached", async () => {
    const failures = [new TypeError("the provider cannot be reached"), new LoginFailed("the session has ended")];
    const { store, told } = storeOf(() => Promise.reject(failures.shift() ?? new Error()));
    store.keep({ kind: "oidc", grant: grant("token", 1_000) });
    expect(await store.bearer()).toBe("token");
    expect(await store.bearer()).toBeNull();
    expect(told.at(-1)).toEqual({ kind: "lost", reason: "the session has ended" });
  });

  it("without a refresh token is used to its end", async () => {
    const { store } = storeOf(() => Promise.reject(new Error("nothing to renew with")));
    store.keep({ kind: "oidc", grant: grant("token", -1_000, null) });
    expect(await store.bearer()).toBe("token");
  });
});
