/** One entity in detail: every attribute with its type, time, metadata and history, kept up to date while it is open. */
import type { ComponentChildren } from "preact";
import { useCallback, useMemo } from "preact/hooks";
import { type Attribute, type Entity, fetchEntity, measuredAt, pointOf } from "../api/entities";
import { ago } from "../format";
import type { SpanName } from "../live/attribute-history";
import { cellKey, changeClass, type Changes, useChanges } from "../live/changes";
import { latest, usePolled } from "../live/remote";
import { AttributeHistory } from "./attribute-history";
import { Drawer } from "./drawer";
import { RemoteNotice } from "./notice";
import { shortId, textOf } from "./value";

const PERIOD_MS = 1_000;

/** Of which attribute the history is open (empty: of none), and how far back it goes. */
export interface HistoryChoice {
  attribute: string;
  span: SpanName;
}

export function EntityDrawer(props: {
  tenant: string;
  id: string;
  type: string;
  history: HistoryChoice;
  onHistory: (history: HistoryChoice) => void;
  onClose: () => void;
}): ComponentChildren {
  const { tenant, id, type, history, onHistory, onClose } = props;
  const remote = usePolled(
    useCallback(() => fetchEntity(tenant, id, type), [tenant, id, type]),
    PERIOD_MS,
  );
  const entity = latest(remote);
  const changes = useChanges(useMemo(() => (entity === null ? [] : [entity]), [entity]));
  const subtitle = (
    <>
      {entity?.type ?? type} · <code>{id}</code>
    </>
  );
  return (
    <Drawer title={shortId(id)} subtitle={subtitle} onClose={onClose}>
      <RemoteNotice remote={remote} what="this entity" />
      {entity !== null && (
        <Details tenant={tenant} entity={entity} changes={changes} history={history} onHistory={onHistory} />
      )}
    </Drawer>
  );
}

function Details(props: {
  tenant: string;
  entity: Entity;
  changes: Changes;
  history: HistoryChoice;
  onHistory: (history: HistoryChoice) => void;
}): ComponentChildren {
  const { tenant, entity, changes, history, onHistory } = props;
  const measured = measuredAt(entity);
  return (
    <>
      <p class="drawer-facts">
        {measured === null
          ? "The time of measurement is unknown"
          : `Measured ${ago(measured, Date.now())}, at ${new Date(measured).toISOString()}`}
      </p>
      <dl class="attributes">
        {[...entity.attributes].map(([name, attribute]) => {
          const open = name === history.attribute;
          return (
            <div key={name}>
              <dt>
                <button
                  type="button"
                  class="disclosure"
                  aria-expanded={open}
                  title="History"
                  onClick={() => {
                    onHistory({ ...history, attribute: open ? "" : name });
                  }}
                >
                  {name}
                </button>
                <small>{attribute.type}</small>
              </dt>
              <dd class={changeClass(changes.get(cellKey(entity, name)))}>
                <AttributeValue attribute={attribute} />
                <MetadataLines attribute={attribute} entityMeasured={measured} />
              </dd>
              {open && (
                <dd class="wide">
                  <AttributeHistory
                    whose={{ tenant, id: entity.id, type: entity.type, attribute: name }}
                    isNumber={typeof attribute.value === "number"}
                    span={history.span}
                    onSpan={(span) => {
                      onHistory({ attribute: name, span });
                    }}
                  />
                </dd>
              )}
            </div>
          );
        })}
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
