/**
 * The login of this browser tab: an API token, or what an OpenID Connect provider has given.
 *
 * It is kept in the storage of the browser session, so it survives a reload and ends with the tab. It is sent in the
 * header `Authorization` and stands in no address.
 */
import { type Decoder, plainObject, string } from "./decode";
import { decodeGrant, type Grant, LoginFailed, renew } from "./oidc";

export type Credential = { kind: "token"; secret: string } | { kind: "oidc"; grant: Grant };

/** `kept`: there is another login. `lost`: the server wants one, and does not take that which was sent, if any, for a reason. */
export type CredentialEvent = { kind: "kept" } | { kind: "lost"; reason: string | null };

const KEY = "millstream.login";
/** A token is renewed this long before it ends. */
const RENEW_BEFORE_MS = 30_000;

const decodeCredential: Decoder<Credential> = (value, path) => {
  const { kind, secret, grant } = plainObject(value, path);
  if (kind === "oidc") return { kind, grant: decodeGrant(grant, `${path}.grant`) };
  return { kind: "token", secret: string(secret, `${path}.secret`) };
};

export class CredentialStore {
  readonly #listeners = new Set<(event: CredentialEvent) => void>();
  /** A change of the login that is under way, after which requests are sent again. */
  #change: Promise<void> = Promise.resolve();
  #renewal: Promise<void> | null = null;

  constructor(
    private readonly storage: () => Pick<Storage, "getItem" | "setItem" | "removeItem">,
    private readonly renewed: (grant: Grant) => Promise<Grant | null> = renew,
  ) {}

  get(): Credential | null {
    const stored = this.storage().getItem(KEY);
    if (stored === null) return null;
    try {
      return decodeCredential(JSON.parse(stored), "login");
    } catch {
      // Another version of the console has written it.
      this.forget();
      return null;
    }
  }

  keep(credential: Credential): void {
    this.#store(credential);
    this.#tell({ kind: "kept" });
  }

  forget(): void {
    this.storage().removeItem(KEY);
  }

  listen(listener: (event: CredentialEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** What a request sends, renewed if it is about to end; null without a login. */
  async bearer(): Promise<string | null> {
    const credential = this.get();
    if (credential?.kind !== "oidc") return credential?.secret ?? null;
    const { expires_ms, refresh_token } = credential.grant;
    if (refresh_token !== null && expires_ms !== null && expires_ms - RENEW_BEFORE_MS < Date.now()) await this.#renew();
    return bearerOf(this.get());
  }

  /** What to send instead of `refused`, which the server does not take; null if there is nothing better. */
  async better(refused: string | null): Promise<string | null> {
    await this.#change;
    const other = (): string | null => {
      const now = bearerOf(this.get());
      return now === refused ? null : now;
    };
    const found = other();
    if (found !== null || this.get()?.kind !== "oidc") return found;
    await this.#renew();
    return other();
  }

  /** Forgets the login that the server has refused, and has the console ask for another. */
  lose(refused: string | null, reason: string): void {
    if (bearerOf(this.get()) !== refused) return;
    this.forget();
    this.#tell({ kind: "lost", reason: refused === null ? null : reason });
  }

  /** Does what ends with another login: requests that are refused meanwhile wait for it. */
  async during<T>(act: () => Promise<T>): Promise<T> {
    const work = act();
    this.#change = work.then(
      () => undefined,
      () => undefined,
    );
    return work;
  }

  #store(credential: Credential): void {
    this.storage().setItem(KEY, JSON.stringify(credential));
  }

  #tell(event: CredentialEvent): void {
    for (const listener of [...this.#listeners]) listener(event);
  }

  /** At most one renewal at a time: providers take a refresh token once. */
  async #renew(): Promise<void> {
    this.#renewal ??= this.#renewOnce().finally(() => {
      this.#renewal = null;
    });
    await this.#renewal;
  }

  async #renewOnce(): Promise<void> {
    const before = this.get();
    if (before?.kind !== "oidc") return;
    try {
      const grant = await this.renewed(before.grant);
      // The user may have logged out meanwhile.
      if (grant !== null && bearerOf(this.get()) === before.grant.bearer) this.#store({ kind: "oidc", grant });
    } catch (cause) {
      if (cause instanceof LoginFailed) this.lose(before.grant.bearer, cause.message);
      // A provider that cannot be reached now may be there again when the token is refused.
    }
  }
}

function bearerOf(credential: Credential | null): string | null {
  if (credential === null) return null;
  return credential.kind === "token" ? credential.secret : credential.grant.bearer;
}

export const credentials = new CredentialStore(() => sessionStorage);
