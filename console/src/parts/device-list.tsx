/** The devices of a tenant, found by id and state, and the way to make one. */
import type { ComponentChildren } from "preact";
import { useCallback, useContext, useState } from "preact/hooks";
import {
  type Device,
  DEVICE_LIMITS,
  fetchMappingErrors,
  type FoundDevices,
  type MappingErrors,
  searchDevices,
  TENANT_DEFAULT,
} from "../api/devices";
import { ago, counted, moment } from "../format";
import { AddressesContext, commands } from "../live/addresses";
import { latest, usePolled } from "../live/remote";
import { commandFlags } from "../pages/command-flags";
import { type DevicesMover, devicesParams, type DevicesPlace } from "../pages/devices-place";
import { follow, href } from "../route";
import { FirstSteps } from "./command";
import { CreateDevice } from "./create-device";
import { DeviceFilters } from "./device-filters";
import { Notice, RemoteNotice, sentence } from "./notice";
import { Paging } from "./paging";
import { Name } from "./value";

const PERIOD_MS = 3_000;
/** Devices with errors that are named above the list. */
const NAMED_MAX = 5;

export function DeviceList({ place, onMove }: { place: DevicesPlace; onMove: DevicesMover }): ComponentChildren {
  const { tenant, text, kind, state, order, page, limit } = place;
  const [told, setTold] = useState(0);
  const remote = usePolled(
    useCallback(
      () =>
        // Another number asks again at once.
        searchDevices(tenant, { text, kind, state, order, page, limit }).then((found) => ({ found, told })),
      [tenant, text, kind, state, order, page, limit, told],
    ),
    PERIOD_MS,
  );
  const errors = latest(
    usePolled(
      useCallback(() => fetchMappingErrors(tenant, null), [tenant]),
      PERIOD_MS,
    ),
  );
  const found = latest(remote)?.found ?? null;
  const isFiltered = text !== "" || kind !== "" || state !== "";
  return (
    <>
      <div class="page-head">
        <h1>Devices</h1>
        <span class="spring" />
        <CreateDevice
          tenant={tenant}
          onMade={(device) => {
            setTold((before) => before + 1);
            onMove({ device }, "step");
          }}
        />
      </div>
      <RemoteNotice remote={remote} what="devices" />
      {errors !== null && errors.total > 0 && <Unmapped errors={errors} place={place} />}
      {found?.total === 0 && !isFiltered ? (
        <section class="card" aria-label="Devices">
          <NoDevices tenant={tenant} />
        </section>
      ) : (
        found !== null && (
          <section class="card cut-corners" aria-label="Devices">
            <DeviceFilters place={place} onMove={onMove} />
            <Rows found={found} errors={errors} place={place} />
            <Paging
              page={page}
              limit={limit}
              shown={found.devices.length}
              total={found.total}
              nouns={["device", "devices"]}
              limits={DEVICE_LIMITS}
              onChange={(change) => {
                onMove(change, "step");
              }}
            />
          </section>
        )
      )}
    </>
  );
}

/** What is wrong with devices whose measurements become no entity, where the whole list is looked at. */
function Unmapped({ errors, place }: { errors: MappingErrors; place: DevicesPlace }): ComponentChildren {
  const named = errors.devices.slice(0, NAMED_MAX);
  return (
    <Notice
      tone="warning"
      title={`${counted(errors.total, "device sends", "devices send")} measurements that become no entity, or not all of them`}
    >
      {named.map(({ device, what }) => (
        <span key={device} class="unmapped">
          <a href={href("devices", devicesParams({ ...place, device }))} onClick={follow}>
            {device}
          </a>
          : {sentence(what)}
        </span>
      ))}
      {errors.total > named.length && (
        <span class="unmapped">And {counted(errors.total - named.length, "more", "more")}.</span>
      )}
    </Notice>
  );
}

function Rows(props: { found: FoundDevices; errors: MappingErrors | null; place: DevicesPlace }): ComponentChildren {
  const { found, errors, place } = props;
  if (found.devices.length === 0) {
    return (
      <Notice tone="quiet" title={found.total === 0 ? "No device is like that" : "This page is beyond the last device"}>
        Change the search above, or go back.
      </Notice>
    );
  }
  const wrong = new Set(errors?.devices.map(({ device }) => device));
  const now = Date.now();
  return (
    <div class="scroll">
      <table class="devices">
        <thead>
          <tr>
            <th scope="col">Device</th>
            <th scope="col">State</th>
            <th scope="col" title="Whether it has an open MQTT connection of its own">
              MQTT
            </th>
            <th scope="col" title="When its last message was taken, by HTTP or MQTT">
              Last seen
            </th>
            <th scope="col">Gateways</th>
            <th scope="col">Created</th>
          </tr>
        </thead>
        <tbody>
          {found.devices.map((device) => (
            <tr key={device.id}>
              <th scope="row">
                <a href={href("devices", devicesParams({ ...place, device: device.id }))} onClick={follow}>
                  <Name text={device.id} />
                </a>
              </th>
              <td>
                <DeviceState device={device} />
                {wrong.has(device.id) && <span class="tag warning">no entity</span>}
              </td>
              <td>
                {device.status.connected ? <span class="state good">connected</span> : <span class="absent">–</span>}
              </td>
              <td title={device.status.last_seen ?? undefined}>{seenText(device, now)}</td>
              <td class="cut">{gatewaysOf(device) ?? <span class="absent">–</span>}</td>
              <td title={device.status.created}>{moment(Date.parse(device.status.created))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function DeviceState({ device }: { device: Device }): ComponentChildren {
  return device.enabled ? <span>enabled</span> : <span class="state warning">disabled</span>;
}

function seenText({ status }: Device, now: number): ComponentChildren {
  return status.last_seen === null ? <span class="absent">never</span> : ago(Date.parse(status.last_seen), now);
}

export function gatewaysOf({ via, via_groups }: Device): string | null {
  const all = [...via, ...via_groups.map((group) => `group ${group}`)];
  return all.length === 0 ? null : all.join(", ");
}

function NoDevices({ tenant }: { tenant: string }): ComponentChildren {
  const name = tenant === "" ? TENANT_DEFAULT : tenant;
  const addresses = useContext(AddressesContext);
  return (
    <FirstSteps
      title={`Tenant ${name} has no devices yet`}
      command={commands(
        `millstream device add sensor-1 --password hush${commandFlags(tenant)}`,
        addresses.httpMessage(`sensor-1@${name}`, "hush", "/telemetry"),
        addresses.mqttMessage(`sensor-1@${name}`, "hush", "telemetry"),
      )}
    >
      Register the first one here or from a terminal, and send as it over HTTP or MQTT.
    </FirstSteps>
  );
}
