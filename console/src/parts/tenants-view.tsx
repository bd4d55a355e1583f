/** The tenants of the registry: their limits, and the ways to make, disable and delete one. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import {
  createTenant,
  deleteTenant,
  fetchTenants,
  type LimitName,
  setTenantEnabled,
  type Tenant,
  TENANT_LIMITS,
} from "../api/access";
import { countDevices } from "../api/devices";
import { type Caller, hasRole, ownTenant } from "../api/login";
import { BASE } from "../base";
import { counted, short, whole } from "../format";
import { latest, usePolled } from "../live/remote";
import { ACCESS_LIMITS, type AccessMover, type AccessPlace } from "../pages/access-place";
import { FirstSteps } from "./command";
import { ConfirmButton } from "./confirm";
import { Field, FormDialog, textOf } from "./form-dialog";
import { Notice, RemoteNotice } from "./notice";
import { Paging } from "./paging";

const PERIOD_MS = 5_000;

export function TenantsView(props: {
  place: AccessPlace;
  caller: Caller | null;
  onMove: AccessMover;
}): ComponentChildren {
  const { place, caller, onMove } = props;
  const { page, limit } = place;
  const own = ownTenant(caller);
  const [changes, setChanges] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(
      () => fetchTenants(own, page, limit).then((found) => ({ ...found, changes })),
      [own, page, limit, changes],
    ),
    PERIOD_MS,
  );
  const changed = (): void => {
    setChanges((before) => before + 1);
  };
  const known = latest(remote);
  const mayChange = own === null && hasRole(caller, "admin");
  return (
    <section class="card cut-corners" aria-labelledby="tenants-title">
      <div class="card-head">
        <h2 id="tenants-title">Tenants</h2>
        {mayChange ? (
          <CreateTenant onMade={changed} />
        ) : (
          <span class="quiet">Admins of all tenants make and delete them</span>
        )}
      </div>
      <RemoteNotice remote={remote} what="tenants" />
      {known?.tenants.length === 0 && <Nothing page={page} own={own} />}
      {known !== null && known.tenants.length > 0 && (
        <TenantTable tenants={known.tenants} mayChange={mayChange} onChanged={changed} />
      )}
      {known !== null && known.total > limit && (
        <Paging
          page={page}
          limit={limit}
          shown={known.tenants.length}
          total={known.total}
          nouns={["tenant", "tenants"]}
          limits={ACCESS_LIMITS}
          onChange={(change) => {
            onMove(change, "step");
          }}
        />
      )}
    </section>
  );
}

function TenantTable(props: {
  tenants: readonly Tenant[];
  mayChange: boolean;
  onChanged: () => void;
}): ComponentChildren {
  const { tenants, mayChange, onChanged } = props;
  return (
    <div class="scroll">
      <table class="tenants">
        <thead>
          <tr>
            <th scope="col">Tenant</th>
            <th scope="col">State</th>
            <th scope="col" class="number" title="Certificate authorities that sign certificates of its devices">
              Trust anchors
            </th>
            <th scope="col">Limits</th>
            {mayChange && (
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {tenants.map((tenant) => (
            <tr key={tenant.id}>
              <th scope="row">
                {tenant.id}
                {tenant.alias !== null && <small class="quiet"> alias {tenant.alias}</small>}
              </th>
              <td>
                <span class={tenant.enabled ? "state good" : "state quiet"}>
                  {tenant.enabled ? "Enabled" : "Disabled"}
                </span>
              </td>
              <td class="number">{whole(tenant.trustAnchors)}</td>
              <td>{limitsText(tenant) ?? <span class="absent">none</span>}</td>
              {mayChange && (
                <td class="row-actions">
                  <TenantActions tenant={tenant} onChanged={onChanged} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** `100 devices, 1,000 messages/s`; null without a limit. */
export function limitsText({ limits }: Tenant): string | null {
  const names = Object.keys(TENANT_LIMITS) as LimitName[];
  const given = names.flatMap((name) => {
    const most = limits[name];
    return most === null ? [] : [`${short(most)} ${TENANT_LIMITS[name]}`];
  });
  return given.length === 0 ? null : given.join(", ");
}

function TenantActions({ tenant, onChanged }: { tenant: Tenant; onChanged: () => void }): ComponentChildren {
  const { id, enabled } = tenant;
  return (
    <>
      <ConfirmButton
        role="admin"
        label={enabled ? "Disable" : "Enable"}
        title={enabled ? `Disable tenant ${id}?` : `Enable tenant ${id}?`}
        tone="plain"
        act={() => setTenantEnabled(id, !enabled)}
        onDone={onChanged}
      >
        {enabled ? "Its devices are refused until it is enabled again. Nothing is deleted." : "Its devices may log in."}
      </ConfirmButton>
      <ConfirmButton
        role="admin"
        label="Delete"
        title={`Delete tenant ${id}?`}
        tone="stop"
        typed={id}
        act={() => deleteTenant(id)}
        onDone={onChanged}
      >
        <DevicesThatGo tenant={id} /> Its devices and their credentials are deleted with it. Topics, entities and tokens
        of the tenant stay.
      </ConfirmButton>
    </>
  );
}

/** How many devices are deleted with a tenant. */
function DevicesThatGo({ tenant }: { tenant: string }): ComponentChildren {
  const remote = usePolled(
    useCallback(() => countDevices(tenant), [tenant]),
    PERIOD_MS,
  );
  const count = latest(remote);
  if (count === null) return null;
  return <b>{count === 0 ? "It has no devices." : `${counted(count, "device")} will be deleted.`}</b>;
}

function CreateTenant({ onMade }: { onMade: () => void }): ComponentChildren {
  return (
    <FormDialog
      role="admin"
      label="Create a tenant"
      tone="primary"
      submit="Create"
      refusal="The tenant was not made"
      act={async (form) => {
        const limits: Partial<Record<LimitName, number>> = {};
        for (const name of MADE_WITH) {
          const text = textOf(form, name);
          if (text !== "") limits[name] = Number(text);
        }
        await createTenant({ id: textOf(form, "id"), limits });
        onMade();
      }}
    >
      <Field label="Id" hint="a-z A-Z 0-9 - _ .">
        <input name="id" required maxLength={50} spellcheck={false} autocomplete="off" autocapitalize="off" />
      </Field>
      <Field label="Most devices">
        <input name="max-devices" type="number" min="0" placeholder="no limit" />
      </Field>
      <Field label="Most messages per second">
        <input name="max-messages-per-second" type="number" min="0" placeholder="no limit" />
      </Field>
    </FormDialog>
  );
}

/** The limits that the form offers; the others are for `PUT /v1/tenants/ID`. */
const MADE_WITH: readonly LimitName[] = ["max-devices", "max-messages-per-second"];

function Nothing({ page, own }: { page: number; own: string | null }): ComponentChildren {
  if (page > 1) return <Notice tone="quiet" title="This page is beyond the last tenant" />;
  if (own !== null) {
    return (
      <Notice tone="quiet" title={`Tenant ${own} is not in the registry`}>
        Applications may use it all the same. Before its devices can log in, an admin of all tenants makes it.
      </Notice>
    );
  }
  const address = `${location.origin}${BASE}/v1/tenants/acme`;
  return (
    <FirstSteps
      title="There are no tenants yet"
      command={`curl -X POST ${address} -H 'Authorization: Bearer '$MILLSTREAM_TOKEN`}
    >
      A tenant has devices, entities and topics of its own. Applications may use any tenant; the devices of one log in
      once it is made, here or from a terminal:
    </FirstSteps>
  );
}
