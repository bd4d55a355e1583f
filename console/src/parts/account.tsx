/** As whom one is logged in, and the way out. */
import type { ComponentChildren } from "preact";
import { type Caller, EVERY_TENANT } from "../api/login";
import { limitsText } from "../live/caller";
import { Menu } from "./menu";

export function Account({ caller, logOut }: { caller: Caller; logOut: () => void }): ComponentChildren {
  const { name, tenant, roles, limits } = caller;
  return (
    <div class="account">
      <Menu label={name} edge="right">
        {() => (
          <>
            <dl class="account-facts">
              <dt>Logged in as</dt>
              <dd>{name}</dd>
              <dt>Tenant</dt>
              <dd>{tenant === EVERY_TENANT ? "all" : tenant}</dd>
              <dt>Roles</dt>
              <dd>{roles.length === 0 ? "none" : roles.join(", ")}</dd>
              {limits !== null && (
                <>
                  <dt>Limited to</dt>
                  <dd>{limitsText(limits)}</dd>
                </>
              )}
            </dl>
            <button type="button" onClick={logOut}>
              Log out
            </button>
          </>
        )}
      </Menu>
    </div>
  );
}
