/** The registrations of a tenant: which context provider has what, and how asking it goes. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchRegistrations, type Registration } from "../api/registrations";
import { BASE } from "../base";
import { ago, whole } from "../format";
import { forwardState, providedText } from "../live/forwards";
import { latest, usePolled } from "../live/remote";
import type { EntitiesPlace, Mover } from "../pages/entities-place";
import { FirstSteps } from "./command";
import { Notice, RemoteNotice } from "./notice";
import { Paging } from "./paging";

const PERIOD_MS = 2_000;

export function RegistrationsView(props: {
  place: EntitiesPlace;
  /** The way to other lists. */
  lists: ComponentChildren;
  onMove: Mover;
}): ComponentChildren {
  const { place, lists, onMove } = props;
  const { tenant, page, limit } = place;
  const remote = usePolled(
    useCallback(() => fetchRegistrations(tenant, limit, (page - 1) * limit), [tenant, limit, page]),
    PERIOD_MS,
  );
  const known = latest(remote);
  return (
    <>
      <div class="page-head">
        {lists}
        <span class="spring" />
      </div>
      {remote.kind === "stalled" && <RemoteNotice remote={remote} what="registrations" />}
      <div class="entities-body wide">
        <section class="card entities-list" aria-label="Registrations">
          {remote.kind !== "stalled" && <RemoteNotice remote={remote} what="registrations" />}
          {known !== null && known.registrations.length === 0 && <Nothing page={page} tenant={tenant} />}
          {known !== null && known.registrations.length > 0 && (
            <RegistrationTable registrations={known.registrations} />
          )}
          {known !== null && known.total > 0 && (
            <Paging
              page={page}
              limit={limit}
              shown={known.registrations.length}
              total={known.total}
              nouns={["registration", "registrations"]}
              onChange={(change) => {
                onMove(change, "step");
              }}
            />
          )}
        </section>
      </div>
    </>
  );
}

function RegistrationTable({ registrations }: { registrations: readonly Registration[] }): ComponentChildren {
  const now = Date.now();
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of registrations">
      <table class="entities subscriptions">
        <thead>
          <tr>
            <th scope="col">Registration</th>
            <th scope="col">Provider</th>
            <th scope="col">Has</th>
            <th scope="col">At</th>
            <th scope="col">Asked for</th>
            <th scope="col" class="number" title="Requests since the server started">
              Sent
            </th>
            <th scope="col">Last answer</th>
            <th scope="col">Last failure</th>
          </tr>
        </thead>
        <tbody>
          {registrations.map((registration) => (
            <Row key={registration.id} registration={registration} now={now} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const ASKED_FOR: Readonly<Record<string, string>> = {
  all: "queries, updates",
  query: "queries",
  update: "updates",
  none: "nothing",
};

function Row({ registration, now }: { registration: Registration; now: number }): ComponentChildren {
  const { id, description, url, mode, forwards } = registration;
  const { tone, word, detail } = forwardState(registration, now);
  const has = providedText(registration);
  return (
    <tr>
      <th scope="row">
        <span class="id">
          <span class="cut">{description === "" ? id : description}</span>
          {description !== "" && <span class="id-start">{id}</span>}
        </span>
      </th>
      <td>
        <span class={`state ${tone}`} title={detail === "" ? undefined : detail}>
          {word}
        </span>
      </td>
      <td class="cut" title={has}>
        {has}
      </td>
      <td class="cut" title={url}>
        {url}
      </td>
      <td>{ASKED_FOR[mode] ?? mode}</td>
      <td class="number">{whole(forwards.timesSent)}</td>
      <td>
        <Outcome at={forwards.lastSuccess} text={String(forwards.lastSuccessCode ?? "")} now={now} />
      </td>
      <td class="cut" title={forwards.lastFailureReason ?? undefined}>
        <Outcome at={forwards.lastFailure} text={forwards.lastFailureReason ?? ""} now={now} />
      </td>
    </tr>
  );
}

function Outcome({ at, text, now }: { at: string | null; text: string; now: number }): ComponentChildren {
  if (at === null) return <span class="absent">–</span>;
  return (
    <>
      <time dateTime={at} title={at}>
        {ago(Date.parse(at), now)}
      </time>{" "}
      <span class="quiet">{text}</span>
    </>
  );
}

function Nothing({ page, tenant }: { page: number; tenant: string }): ComponentChildren {
  if (page > 1) return <Notice tone="quiet" title="This page is beyond the last registration" />;
  const header = tenant === "" ? "" : ` \\\n  -H 'Fiware-Service: ${tenant}'`;
  const command = `curl ${location.origin}${BASE}/v2/registrations -H 'Content-Type: application/json'${header} -d '{
  "dataProvided": {"entities": [{"id": "lamp1", "type": "Lamp"}], "attrs": ["battery"]},
  "provider": {"http": {"url": "http://localhost:4041"}}}'`;
  return (
    <FirstSteps title="There are no registrations yet" command={command}>
      A registration names a context provider, such as a FIWARE IoT Agent: what is not here is asked of it, and commands
      go to it. IoT Agents register their devices by themselves; from a terminal:
    </FirstSteps>
  );
}
