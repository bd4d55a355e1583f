/** Access: the tenants, and the API tokens with which applications and people log in. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Login } from "../api/login";
import { Notice } from "../parts/notice";
import { TenantsView } from "../parts/tenants-view";
import { TokensView } from "../parts/tokens-view";
import { go, href } from "../route";
import { type AccessMover, accessParams, accessPlace } from "./access-place";

export function AccessPage({ params, login }: { params: URLSearchParams; login: Login }): ComponentChildren {
  const place = useMemo(() => accessPlace(params), [params]);
  const move: AccessMover = (change, how) => {
    go(href("access", accessParams({ ...place, ...change })), how);
  };
  return (
    <div class="page">
      <div class="page-head">
        <h1>Access</h1>
      </div>
      {!login.required && (
        <Notice tone="warning" title="Nobody needs a login yet">
          Callers from this machine may do everything. The first token ends that: then every application, and this
          console, must show one.
        </Notice>
      )}
      <TenantsView place={place} caller={login.caller} onMove={move} />
      <TokensView place={place} login={login} onMove={move} />
    </div>
  );
}
