/**
 * Logging in with an OpenID Connect provider: authorization code flow with PKCE (RFC 7636), without a client secret.
 *
 * `beginLogin` sends the browser to the provider, which sends it back to {@link CALLBACK_PATH}; `finishLogin` exchanges the
 * code. What a login needs on its way back (verifier, state, nonce) waits in the storage of the browser session and is
 * used once.
 */
import { BASE } from "../base";
import { type Decoder, nullable, number, object, string } from "./decode";

export const CALLBACK_PATH = `${BASE}/login`;

/** The provider, as `GET /api/login` describes it. Without addresses, the server has not reached it yet. */
export interface Provider {
  issuer: string;
  authorization_endpoint: string | null;
  token_endpoint: string | null;
  client_id: string;
  scope: string;
}

export const decodeProvider: Decoder<Provider> = object<Provider>({
  issuer: string,
  authorization_endpoint: nullable(string),
  token_endpoint: nullable(string),
  client_id: string,
  scope: string,
});

/** What the provider has given for a login. */
export interface Grant {
  /** The token that requests to the server carry. */
  bearer: string;
  /** When it ends by this machine's clock, in milliseconds since 1970; null if the provider does not say. */
  expires_ms: number | null;
  refresh_token: string | null;
  token_endpoint: string;
  client_id: string;
}

export const decodeGrant: Decoder<Grant> = object<Grant>({
  bearer: string,
  expires_ms: nullable(number),
  refresh_token: nullable(string),
  token_endpoint: string,
  client_id: string,
});

/** A login on its way. */
interface Pending {
  state: string;
  nonce: string;
  verifier: string;
  provider: Provider;
  /** The address at which the user wanted to be. */
  back: string;
}

const decodePending = object<Pending>({
  state: string,
  nonce: string,
  verifier: string,
  provider: decodeProvider,
  back: string,
});

type SessionStorage = Pick<Storage, "getItem" | "setItem" | "removeItem">;

const PENDING_KEY = "millstream.login.pending";
/** How long the provider may take to exchange a code or to renew a token. */
const PROVIDER_MAX_MS = 15_000;

/** A login that the provider, or this page, has refused. */
export class LoginFailed extends Error {
  constructor(message: string) {
    super(message);
    this.name = "LoginFailed";
  }
}

/** The part of a provider's address by which people know it. */
export function hostOf(provider: Provider): string {
  return URL.canParse(provider.issuer) ? new URL(provider.issuer).host : provider.issuer;
}

/** Remembers a new login and returns the address of the provider at which it begins. */
export async function beginLogin(
  provider: Provider,
  origin: string,
  back: string,
  storage: SessionStorage,
): Promise<string> {
  // Browsers have cryptography on secure pages only.
  if (!("subtle" in crypto)) throw new LoginFailed("a login with a provider needs this page over HTTPS");
  if (provider.authorization_endpoint === null) {
    throw new LoginFailed("the server has not reached the provider yet; try again in a moment");
  }
  const pending: Pending = { state: random(), nonce: random(), verifier: random(), provider, back };
  storage.setItem(PENDING_KEY, JSON.stringify(pending));
  const challenge = base64url(
    new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(pending.verifier))),
  );
  const address = new URL(provider.authorization_endpoint);
  const parameters = {
    response_type: "code",
    client_id: provider.client_id,
    redirect_uri: origin + CALLBACK_PATH,
    scope: provider.scope,
    state: pending.state,
    nonce: pending.nonce,
    code_challenge: challenge,
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters)) address.searchParams.set(name, value);
  return address.href;
}

/** True for the address to which a provider has sent the browser back. */
export function isCallback(address: URL): boolean {
  return address.pathname === CALLBACK_PATH && (address.searchParams.has("code") || address.searchParams.has("error"));
}

/** Exchanges the code in the address for tokens. Returns them with the address at which the user wanted to be. */
export async function finishLogin(address: URL, storage: SessionStorage): Promise<{ grant: Grant; back: string }> {
  const stored = storage.getItem(PENDING_KEY);
  storage.removeItem(PENDING_KEY);
  if (stored === null) throw new LoginFailed("this page has not begun a login, or it is over; log in again");
  const pending = decodePending(JSON.parse(stored), "login");
  const answer = address.searchParams;
  if (answer.get("state") !== pending.state) {
    throw new LoginFailed("the answer of the provider does not belong to this login; log in again");
  }
  // Providers that name themselves (RFC 9207) are not mixed up with others.
  const issuer = answer.get("iss");
  if (issuer !== null && issuer !== pending.provider.issuer) {
    throw new LoginFailed(`the answer is from ${issuer} instead of ${pending.provider.issuer}`);
  }
  const error = answer.get("error");
  if (error !== null) throw refusedBy(pending.provider, error, answer.get("error_description"));
  const { token_endpoint, client_id } = pending.provider;
  if (token_endpoint === null) throw new LoginFailed("the server has not told where the provider gives tokens");
  const tokens = await askForTokens(token_endpoint, {
    grant_type: "authorization_code",
    code: answer.get("code") ?? "",
    redirect_uri: address.origin + CALLBACK_PATH,
    client_id,
    code_verifier: pending.verifier,
  });
  if (tokens.id_token !== null) checkIdToken(tokens.id_token, pending);
  return { grant: grantOf(tokens, token_endpoint, client_id, null), back: pending.back };
}

/** Asks the provider for a new token. Null if the grant cannot be renewed. */
export async function renew(grant: Grant): Promise<Grant | null> {
  const { refresh_token, token_endpoint, client_id } = grant;
  if (refresh_token === null) return null;
  const tokens = await askForTokens(token_endpoint, { grant_type: "refresh_token", refresh_token, client_id });
  return grantOf(tokens, token_endpoint, client_id, refresh_token);
}

interface TokenAnswer {
  access_token: string | null;
  id_token: string | null;
  refresh_token: string | null;
  expires_in: number | null;
}

const decodeTokens = object<TokenAnswer>({
  access_token: nullable(string),
  id_token: nullable(string),
  refresh_token: nullable(string),
  expires_in: nullable(number),
});

const decodeError = object({ error: string, error_description: nullable(string) });

async function askForTokens(endpoint: string, body: Readonly<Record<string, string>>): Promise<TokenAnswer> {
  const signal = AbortSignal.timeout(PROVIDER_MAX_MS);
  // Neither cookies nor the address of this page are the provider's business here.
  const init: RequestInit = { method: "POST", body: new URLSearchParams(body), signal, credentials: "omit" };
  let answer: Response;
  try {
    answer = await fetch(endpoint, { ...init, referrerPolicy: "no-referrer" });
  } catch {
    throw new TypeError(`the provider cannot be reached at ${new URL(endpoint).host}`);
  }
  const text: unknown = await answer.json().catch(() => null);
  if (!answer.ok) {
    const { error, error_description } = errorOf(text) ?? { error: `status ${answer.status}`, error_description: null };
    throw new LoginFailed(`the provider refuses the login: ${error_description ?? error}`);
  }
  return decodeTokens(text, "the provider's answer");
}

function errorOf(body: unknown): { error: string; error_description: string | null } | null {
  try {
    return decodeError(body, "answer");
  } catch {
    return null;
  }
}

function refusedBy(provider: Provider, error: string, description: string | null): LoginFailed {
  return new LoginFailed(`${hostOf(provider)} refuses the login: ${description ?? error} (${error})`);
}

/** The access token is for the server, which reads JSON Web Tokens only; the ID token is for this page alone. */
function grantOf(tokens: TokenAnswer, token_endpoint: string, client_id: string, refreshed: string | null): Grant {
  const { access_token: bearer, expires_in } = tokens;
  const claims = bearer === null ? null : claimsOf(bearer);
  if (bearer === null || claims === null) {
    throw new LoginFailed("the provider gives no access token that the server can read (a JSON Web Token)");
  }
  const ends_ms = claims.exp === null ? null : 1000 * claims.exp;
  return {
    bearer,
    // The clocks of two machines differ: a duration is safer than a moment.
    expires_ms: expires_in === null ? ends_ms : Date.now() + 1000 * expires_in,
    refresh_token: tokens.refresh_token ?? refreshed,
    token_endpoint,
    client_id,
  };
}

interface Claims {
  iss: string | null;
  nonce: string | null;
  exp: number | null;
}

const decodeClaims = object<Claims>({ iss: nullable(string), nonce: nullable(string), exp: nullable(number) });

/**
 * Checks that the ID token answers this login. Its signature needs no check here: it comes from the provider itself
 * (OpenID Connect Core 3.1.3.7), and the server checks the one that it is sent.
 */
function checkIdToken(token: string, { nonce, provider }: Pending): void {
  const claims = claimsOf(token);
  if (claims === null) throw new LoginFailed("the provider's ID token cannot be read");
  if (claims.nonce !== nonce) throw new LoginFailed("the provider's ID token does not belong to this login");
  if (claims.iss !== provider.issuer) {
    throw new LoginFailed(`the ID token is from ${claims.iss ?? "nobody"} instead of ${provider.issuer}`);
  }
}

/** The claims of a JSON Web Token; null for any other text. */
function claimsOf(token: string): Claims | null {
  const parts = token.split(".");
  const [, payload = ""] = parts;
  if (parts.length !== 3) return null;
  try {
    const bytes = Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    return decodeClaims(JSON.parse(new TextDecoder().decode(bytes)), "token");
  } catch {
    return null;
  }
}

/** 256 random bits. */
function random(): string {
  return base64url(crypto.getRandomValues(new Uint8Array(32)));
}

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
