/** Whose data the page shows. Tenants cannot be listed by every caller, so a name can be typed as well as picked. */
import type { ComponentChildren } from "preact";
import { TENANT_DEFAULT } from "../api/devices";
import { DraftInput } from "./draft-input";
import { go, href, type Place } from "../route";

export { TENANT_DEFAULT };

export function TenantPicker(props: {
  place: Place;
  /** The tenant to which the caller is limited; null: none. */
  own: string | null;
  known: readonly string[];
}): ComponentChildren {
  const { place, own, known } = props;
  if (own !== null) {
    return (
      <span class="tenant" title="Your login is good for this tenant">
        <span>Tenant</span> <b>{own}</b>
      </span>
    );
  }
  const tenant = place.params.get("tenant") ?? "";
  const names = [...new Set([TENANT_DEFAULT, ...known.filter((name) => name !== "")])].sort();
  const choose = (name: string): void => {
    if (place.page === "unknown") return;
    // Another tenant has other entities and queries: what was chosen on this page means nothing there.
    go(href(place.page, { tenant: name === TENANT_DEFAULT ? "" : name }), "step");
  };
  return (
    <label class="tenant">
      <span>Tenant</span>
      <DraftInput value={tenant} placeholder={TENANT_DEFAULT} list="tenants" onCommit={choose} />
      <datalist id="tenants">
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}
