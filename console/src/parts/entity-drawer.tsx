/** One entity in detail: every attribute with its type, time and metadata, kept up to date while it is open. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import { type Attribute, type Entity, fetchEntity, measuredAt, pointOf } from "../api/entities";
import { ago } from "../format";
import { cellKey, changeClass, type Changes, useChanges } from "../live/changes";
import { latest, usePolled } from "../live/remote";
import { RemoteNotice } from "./notice";
import { shortId, textOf } from "./value";

const PERIOD_MS = 1_000;

export function EntityDrawer(props: {
  tenant: string;
  id: string;
  type: string;
  onClose: () => void;
}): ComponentChildren {
  const { tenant, id, type, onClose } = props;
  const remote = usePolled(
    useCallback(() => fetchEntity(tenant, id, type), [tenant, id, type]),
    PERIOD_MS,
  );
  const entity = latest(remote);
  const changes = useChanges(useMemo(() => (entity === null ? [] : [entity]), [entity]));
  const panel = useRef<HTMLElement>(null);
  useFocusWhileOpen(panel);

  return (
    <aside
      class="drawer"
      ref={panel}
      tabIndex={-1}
      aria-labelledby="drawer-title"
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
      }}
    >
      <header>
        <div>
          <h2 id="drawer-title">{shortId(id)}</h2>
          <p class="quiet">
            {entity?.type ?? type} · <code>{id}</code>
          </p>
        </div>
        <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </header>
      <RemoteNotice remote={remote} what="this entity" />
      {entity !== null && <Details entity={entity} changes={changes} />}
    </aside>
  );
}

function Details({ entity, changes }: { entity: Entity; changes: Changes }): ComponentChildren {
  const now = Date.now();
  const measured = measuredAt(entity);
  return (
    <>
      <p class="drawer-facts">
        {measured === null
          ? "The time of measurement is unknown"
          : `Measured ${ago(measured, now)}, at ${new Date(measured).toISOString()}`}
      </p>
      <dl class="attributes">
        {[...entity.attributes].map(([name, attribute]) => (
          <div key={name} class={changeClass(changes.get(cellKey(entity, name)))}>
            <dt>
              {name} <small>{attribute.type}</small>
            </dt>
            <dd>
              <AttributeValue attribute={attribute} />
              <MetadataLines attribute={attribute} entityMeasured={measured} />
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function AttributeValue({ attribute }: { attribute: Attribute }): ComponentChildren {
  const text = textOf(attribute.value);
  const point = pointOf(attribute);
  if (point === null) return <span>{text}</span>;
  const [longitude, latitude] = point;
  return (
    <span title={text}>
      {latitude.toFixed(5)}, {longitude.toFixed(5)}
    </span>
  );
}

/** Metadata, without a `TimeInstant` that says the same as that of the whole entity. */
function MetadataLines(props: { attribute: Attribute; entityMeasured: number | null }): ComponentChildren {
  const { attribute, entityMeasured } = props;
  return [...attribute.metadata].map(([name, { value }]) => {
    if (name === "TimeInstant" && typeof value === "string" && Date.parse(value) === entityMeasured) return null;
    return (
      <small key={name}>
        {name}: {textOf(value)}
      </small>
    );
  });
}

/** The panel has the focus when it opens; what had it before gets it back. */
function useFocusWhileOpen(panel: { current: HTMLElement | null }): void {
  useEffect(() => {
    const before = document.activeElement;
    panel.current?.focus({ preventScroll: true });
    return () => {
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, [panel]);
}
