// A real OpenID Connect provider on loopback, for the tests here and those of the console in a browser.
//
// `OIDC_PROVIDER_HOME` is the directory with its node_modules. The argument is an object in JSON, every member may be
// left out:
//   listen    HOST:PORT; 127.0.0.1 and a free port
//   tls       {"cert": FILE, "key": FILE}; serves https instead of http
//   clients   by id: the claims of tokens that a program gets with its secret, which is the id and "-secret". `ttl` is
//             the life of its tokens in seconds, `alg` their algorithm
//   accounts  by login name: the claims of people's tokens; the login page takes any name and password
//
// Prints `issuer URL` once it listens, and the answer to each line that it reads:
//   rotate       signs with new keys from now on, and forgets the old ones; answers with the new key id
//   sign OBJECT  signs {"claims": …}, with {"header": …} over the usual one; `alg` may be none or HS256, the latter with
//                the public key in PEM as its secret; answers with the token
//
// The browser's client is `millstream-console`: public, with PKCE and refresh tokens, from any page on loopback.
import { createHmac, createPublicKey, generateKeyPairSync, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const RESOURCE = "urn:millstream:api";
const CONSOLE = "millstream-console";
const SCOPE = "millstream";

const options = JSON.parse(process.argv[2] ?? "{}");
const programs = options.clients ?? {};
const people = options.accounts ?? {
  alice: { tenant: "*", realm_access: { roles: ["reader", "writer", "admin"] } },
  bob: { tenant: "acme", realm_access: { roles: ["reader"] } },
};
// What the provider remarks must not stand between the answers.
console.info = console.error;
const module = join(process.env.OIDC_PROVIDER_HOME, "node_modules/oidc-provider/lib/index.js");
const { default: Provider } = await import(pathToFileURL(module).href);

let generation = 0;
let keys;

function newKeys() {
  generation += 1;
  const kinds = [
    ["RS256", "rsa", { modulusLength: 2048 }],
    ["ES256", "ec", { namedCurve: "P-256" }],
  ];
  keys = kinds.map(([alg, kind, parameters]) => {
    const { privateKey } = generateKeyPairSync(kind, parameters);
    return { alg, kid: `${alg}-${generation}`, privateKey };
  });
}

function isOnLoopback(uri) {
  const { hostname, protocol } = new URL(uri);
  return protocol === "http:" && (/^127\./.test(hostname) || ["localhost", "[::1]"].includes(hostname));
}

/** The grant of a login on the page: it is not asked for a second time. */
async function grantAll(ctx) {
  const { client, session, provider } = ctx.oidc;
  const known = session.grantIdFor(client.clientId);
  if (known) return provider.Grant.find(known);
  const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
  grant.addOIDCScope("openid offline_access");
  grant.addResourceScope(RESOURCE, SCOPE);
  await grant.save();
  return grant;
}

function handler(issuer) {
  const clients = Object.keys(programs).map((id) => ({
    client_id: id,
    client_secret: `${id}-secret`,
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
  }));
  const browser = {
    client_id: CONSOLE,
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
    redirect_uris: ["http://127.0.0.1/"],
    // A native one would be asked for consent at each login.
    application_type: "web",
  };
  const provider = new Provider(issuer, {
    clients: [...clients, browser],
    jwks: { keys: keys.map(({ alg, kid, privateKey }) => ({ ...privateKey.export({ format: "jwk" }), alg, kid, use: "sig" })) },
    cookies: { keys: ["a key for tests"] },
    clientBasedCORS: (_ctx, origin, client) => client.clientId === CONSOLE && isOnLoopback(origin),
    findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    extraTokenClaims: (_ctx, token) =>
      token.kind === "ClientCredentials" ? programs[token.clientId].claims : people[token.accountId],
    issueRefreshToken: (_ctx, client) => client.grantTypeAllowed("refresh_token"),
    loadExistingGrant: grantAll,
    ttl: { Grant: 3600, Interaction: 3600, RefreshToken: 3600, Session: 3600, IdToken: 3600 },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => RESOURCE,
        useGrantedResource: () => true,
        getResourceServerInfo: (_ctx, resource, client) => ({
          audience: resource,
          scope: SCOPE,
          accessTokenFormat: "jwt",
          accessTokenTTL: programs[client.clientId]?.ttl ?? 600,
          jwt: { sign: { alg: programs[client.clientId]?.alg ?? "RS256" } },
        }),
      },
    },
  });
  const isKnown = provider.Client.prototype.redirectUriAllowed;
  provider.Client.prototype.redirectUriAllowed = function redirectUriAllowed(uri) {
    return this.clientId === CONSOLE ? isOnLoopback(uri) : isKnown.call(this, uri);
  };
  return provider.callback();
}

function signed({ header = {}, claims }) {
  const { alg, kid, privateKey } = keys.find((key) => key.alg === (header.alg ?? "RS256")) ?? keys[0];
  const encode = (part) => Buffer.from(JSON.stringify(part)).toString("base64url");
  const text = `${encode({ alg, kid, typ: "at+jwt", ...header })}.${encode(claims)}`;
  if (header.alg === "none") return `${text}.`;
  if (header.alg === "HS256") {
    const secret = createPublicKey(privateKey).export({ format: "pem", type: "spki" });
    return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
  }
  return `${text}.${sign("sha256", Buffer.from(text), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
}

newKeys();
let handle;
const answer = (request, response) => handle(request, response);
const { tls } = options;
const server = tls
  ? createTlsServer({ cert: readFileSync(tls.cert), key: readFileSync(tls.key) }, answer)
  : createServer(answer);
const [, host, port] = /^(.*):(\d+)$/.exec(options.listen ?? "127.0.0.1:0");
server.listen(Number(port), host, () => {
  const issuer = `${tls ? "https" : "http"}://${host}:${server.address().port}`;
  handle = handler(issuer);
  console.log(`issuer ${issuer}`);
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      const [command, ...rest] = line.split(" ");
      if (command === "rotate") {
        newKeys();
        handle = handler(issuer);
        console.log(keys[0].kid);
      } else if (command === "sign") {
        console.log(signed(JSON.parse(rest.join(" "))));
      }
    })
    // The test is gone.
    .on("close", () => process.exit(0));
});
