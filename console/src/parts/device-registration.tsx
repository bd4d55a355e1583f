/** What the registry says of a device, and the form to change it. */
import type { ComponentChildren } from "preact";
import { replaceDevice, type StoredDevice } from "../api/devices";
import type { JsonObject } from "../api/decode";
import { moment } from "../format";
import { DeviceFields, documentOf } from "./device-form";
import { gatewaysOf } from "./device-list";
import { FormDialog } from "./form-dialog";

export function DeviceRegistration(props: {
  tenant: string;
  stored: StoredDevice;
  onChanged: () => void;
}): ComponentChildren {
  const { tenant, stored, onChanged } = props;
  const { device } = stored;
  const facts: [string, string][] = [
    ["State", device.enabled ? "enabled" : "disabled"],
    ["Gateways", gatewaysOf(device) ?? "none"],
    ["Member of", device.member_of.length === 0 ? "no group" : device.member_of.join(", ")],
    ["Created", `${moment(Date.parse(device.status.created))}${device.status.provisioned ? ", by itself" : ""}`],
    ["Updated", moment(Date.parse(device.status.updated))],
  ];
  return (
    <section class="card" aria-labelledby="registration">
      <div class="card-tools">
        <h2 id="registration">Registration</h2>
        <span class="spring" />
        <FormDialog
          role="admin"
          label="Change registration"
          tone="plain"
          submit="Change"
          refusal="The registration was not changed"
          act={async (form) => {
            await replaceDevice(tenant, stored, documentOf(form, device.document));
            onChanged();
          }}
        >
          <DeviceFields device={device} />
        </FormDialog>
      </div>
      <dl class="fact-list">
        {facts.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{text}</dd>
          </div>
        ))}
        <JsonFact name="Defaults" value={device.defaults} />
        <JsonFact name="Extensions" value={device.ext} />
      </dl>
    </section>
  );
}

function JsonFact({ name, value }: { name: string; value: JsonObject }): ComponentChildren {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {Object.keys(value).length === 0 ? (
          "none"
        ) : (
          <pre class="json-fact" tabIndex={0} aria-label={`${name} as JSON`}>
            {JSON.stringify(value, null, 2)}
          </pre>
        )}
      </dd>
    </div>
  );
}
