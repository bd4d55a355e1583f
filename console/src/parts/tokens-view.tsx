/** The API tokens that were made, without their secrets, and the ways to make and revoke one. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import { fetchTokens, revokeToken, type Token } from "../api/access";
import { type Caller, EVERY_TENANT, hasRole, type Login } from "../api/login";
import { latest, usePolled } from "../live/remote";
import { commandFlags } from "../pages/command-flags";
import { ACCESS_LIMITS, type AccessMover, type AccessPlace } from "../pages/access-place";
import { FirstSteps } from "./command";
import { ConfirmButton } from "./confirm";
import { DraftInput } from "./draft-input";
import { CreateToken } from "./create-token";
import { Notice, RemoteNotice } from "./notice";
import { Paging } from "./paging";
import { When } from "./subscription-table";
import { Name } from "./value";

const PERIOD_MS = 5_000;
const SETTLE_MS = 250;

export function TokensView(props: { place: AccessPlace; login: Login; onMove: AccessMover }): ComponentChildren {
  if (hasRole(props.login.caller, "admin")) return <Tokens {...props} />;
  return (
    <section class="card" aria-labelledby="tokens-title">
      <div class="card-head">
        <h2 id="tokens-title">Tokens</h2>
        <span class="quiet">Admins see, make and revoke them</span>
      </div>
    </section>
  );
}

function Tokens(props: { place: AccessPlace; login: Login; onMove: AccessMover }): ComponentChildren {
  const { place, login, onMove } = props;
  const { tokens: page, limit, name } = place;
  const { caller } = login;
  const [changes, setChanges] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchTokens().then((tokens) => ({ tokens, changes })), [changes]),
    PERIOD_MS,
  );
  const changed = (): void => {
    setChanges((before) => before + 1);
  };
  const known = latest(remote)?.tokens ?? null;
  const matching = (known ?? []).filter((token) => token.name.includes(name));
  const shown = matching.slice((page - 1) * limit, page * limit);
  return (
    <section class="card cut-corners" aria-labelledby="tokens-title">
      <div class="card-head">
        <h2 id="tokens-title">Tokens</h2>
        {known !== null && known.length > limit && <NameFilter known={known} name={name} onMove={onMove} />}
        <CreateToken login={login} tenant={place.tenant} onMade={changed} />
      </div>
      <RemoteNotice remote={remote} what="tokens" />
      {known !== null && shown.length === 0 && <Nothing isFiltered={name !== ""} page={page} />}
      {shown.length > 0 && <TokenTable tokens={shown} caller={caller} onChanged={changed} />}
      {known !== null && known.length > 0 && (
        <p class="card-note quiet">
          Tokens of the configuration file are not listed; they end with a restart without them.
        </p>
      )}
      {matching.length > limit && (
        <Paging
          page={page}
          limit={limit}
          shown={shown.length}
          total={matching.length}
          nouns={["token", "tokens"]}
          limits={ACCESS_LIMITS}
          onChange={({ page: tokens, ...change }) => {
            onMove({ ...change, tokens }, "step");
          }}
        />
      )}
    </section>
  );
}

function NameFilter(props: { known: readonly Token[]; name: string; onMove: AccessMover }): ComponentChildren {
  return (
    <label class="filter">
      <span>Name</span>
      <DraftInput
        value={props.name}
        placeholder="all names"
        list="token-names"
        settle_ms={SETTLE_MS}
        onCommit={(name) => {
          props.onMove({ name, tokens: 1 }, "amend");
        }}
      />
      <datalist id="token-names">
        {props.known.map((token) => (
          <option key={token.name} value={token.name} />
        ))}
      </datalist>
    </label>
  );
}

function TokenTable(props: {
  tokens: readonly Token[];
  caller: Caller | null;
  onChanged: () => void;
}): ComponentChildren {
  const { tokens, caller, onChanged } = props;
  const now = Date.now();
  return (
    <div class="scroll">
      <table class="tokens">
        <thead>
          <tr>
            <th scope="col">Token</th>
            <th scope="col">Tenant</th>
            <th scope="col">Roles</th>
            <th scope="col">Only for</th>
            <th scope="col">Made</th>
            <th scope="col">Ends</th>
            <th scope="col">
              <span class="unseen">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {tokens.map((token) => (
            <tr key={token.name}>
              <th scope="row">
                <Name text={token.name} />
                {token.name === caller?.name && <span class="tag">you</span>}
              </th>
              <td>{token.tenant === EVERY_TENANT ? "all" : token.tenant}</td>
              <td>{token.roles.join(", ")}</td>
              <td class="cut" title={scopeText(token) ?? undefined}>
                {scopeText(token) ?? <span class="absent">no limit</span>}
              </td>
              <td title={`by ${token.created_by}`}>
                <When at={token.created} now={now} />
              </td>
              <td>
                <Ends expires={token.expires} now={now} />
              </td>
              <td class="row-actions">
                <Revoke token={token} isOwn={token.name === caller?.name} onRevoked={onChanged} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** `topics telemetry.*, orders*; types Room*; keys photos/2026*`; null for a token without such limits. */
export function scopeText(
  token: Pick<Token, "topics" | "types" | "keys" | "groups" | "transactional_ids">,
): string | null {
  const { topics, types, keys, groups, transactional_ids: ids } = token;
  const list = (noun: string, prefixes: readonly string[]): string[] =>
    prefixes.length === 0 ? [] : [`${noun} ${prefixes.map((prefix) => `${prefix}*`).join(", ")}`];
  const parts = [...list("topics", topics), ...list("types", types), ...list("keys", keys)];
  parts.push(...list("groups", groups), ...list("transactional ids", ids));
  return parts.length === 0 ? null : parts.join("; ");
}

function Ends({ expires, now }: { expires: string | null; now: number }): ComponentChildren {
  if (expires === null) return <span class="absent">never</span>;
  if (Date.parse(expires) > now) return <When at={expires} now={now} />;
  return <span class="state warning">Expired</span>;
}

function Revoke(props: { token: Token; isOwn: boolean; onRevoked: () => void }): ComponentChildren {
  const { token, isOwn, onRevoked } = props;
  return (
    <ConfirmButton
      role="admin"
      label="Revoke"
      title={`Revoke token ${token.name}?`}
      tone="stop"
      act={() => revokeToken(token.name)}
      onDone={onRevoked}
    >
      {isOwn ? "You are logged in with it: the console asks for another one. " : ""}
      It is refused at once on every listener, and connections that use it end. This cannot be taken back.
    </ConfirmButton>
  );
}

function Nothing({ isFiltered, page }: { isFiltered: boolean; page: number }): ComponentChildren {
  if (isFiltered) return <Notice tone="quiet" title="No token has this in its name" />;
  if (page > 1) return <Notice tone="quiet" title="This page is beyond the last token" />;
  const flags = commandFlags("");
  return (
    <FirstSteps
      title="No tokens have been made"
      command={
        `millstream token create operator --every-tenant --role admin --role reader --role writer${flags}\n` +
        `millstream token create shop --role reader --role writer --topics orders --lifetime 90d${flags}`
      }
    >
      A token is the login of an application or a person, over HTTP and for Kafka and Redis clients. Make the first one,
      of an admin, here or from a terminal; tokens of the configuration file are not listed.
    </FirstSteps>
  );
}
