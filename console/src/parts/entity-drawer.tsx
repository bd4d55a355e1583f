/** One entity in detail, kept up to date while it is open: its attributes can be changed, added and deleted, and so can it. */
import type { ComponentChildren } from "preact";
import { useCallback, useMemo, useState } from "preact/hooks";
import { type Entity, fetchEntity, measuredAt } from "../api/entities";
import { deleteEntity } from "../api/entity-changes";
import { ago, counted } from "../format";
import type { SpanName } from "../live/attribute-history";
import { cellKey, changeClass, type Changes, useChanges } from "../live/changes";
import { latest, usePolled } from "../live/remote";
import { AddAttribute } from "./attribute-form";
import { ConfirmButton } from "./confirm";
import { Drawer } from "./drawer";
import { EntityAttribute } from "./entity-attribute";
import { RemoteNotice } from "./notice";
import { shortId } from "./value";
import { RoleButton } from "./role-button";

const PERIOD_MS = 1_000;

/** The attribute whose history is open (empty: none), and how far back it goes. */
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
  /** The entity is gone. */
  onDeleted: () => void;
}): ComponentChildren {
  const { tenant, id, type, history, onHistory, onClose, onDeleted } = props;
  const [asked, setAsked] = useState(0);
  const remote = usePolled(
    // Another number asks again at once.
    useCallback(() => fetchEntity(tenant, id, type).then((entity) => ({ entity, asked })), [tenant, id, type, asked]),
    PERIOD_MS,
  );
  const entity = latest(remote)?.entity ?? null;
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
        <Details
          tenant={tenant}
          entity={entity}
          changes={changes}
          history={history}
          onHistory={onHistory}
          onChanged={() => {
            setAsked((before) => before + 1);
          }}
          onDeleted={onDeleted}
        />
      )}
    </Drawer>
  );
}

/** The open form: it changes an attribute or adds one. */
type Form = { kind: "none" } | { kind: "edit"; name: string } | { kind: "add" };

function Details(props: {
  tenant: string;
  entity: Entity;
  changes: Changes;
  history: HistoryChoice;
  onHistory: (history: HistoryChoice) => void;
  onChanged: () => void;
  onDeleted: () => void;
}): ComponentChildren {
  const { tenant, entity, changes, history, onHistory, onChanged, onDeleted } = props;
  const [form, setForm] = useState<Form>({ kind: "none" });
  const measured = measuredAt(entity);
  const whose = { tenant, id: entity.id, type: entity.type };
  const close = (): void => {
    setForm({ kind: "none" });
  };
  const changed = (): void => {
    close();
    onChanged();
  };
  return (
    <>
      <p class="drawer-facts">
        {measured === null
          ? "The time of measurement is unknown"
          : `Measured ${ago(measured, Date.now())}, at ${new Date(measured).toISOString()}`}
      </p>
      <dl class="attributes">
        {[...entity.attributes].map(([name, attribute]) => (
          <EntityAttribute
            key={name}
            whose={whose}
            name={name}
            attribute={attribute}
            measured={measured}
            changed={changeClass(changes.get(cellKey(entity, name)))}
            history={name === history.attribute}
            form={form.kind === "edit" && form.name === name}
            span={history.span}
            onHistory={(open) => {
              onHistory({ ...history, attribute: open ? name : "" });
            }}
            onForm={(open) => {
              setForm(open ? { kind: "edit", name } : { kind: "none" });
            }}
            onSpan={(span) => {
              onHistory({ attribute: name, span });
            }}
            onChanged={changed}
          />
        ))}
      </dl>
      {form.kind === "add" && <AddAttribute whose={whose} onDone={changed} onCancel={close} />}
      <div class="drawer-actions">
        {form.kind !== "add" && (
          <RoleButton
            role="writer"
            onClick={() => {
              setForm({ kind: "add" });
            }}
          >
            Add attribute
          </RoleButton>
        )}
        <ConfirmButton
          role="writer"
          label="Delete entity"
          title={`Delete ${shortId(entity.id)}?`}
          tone="stop"
          act={() => deleteEntity(whose)}
          onDone={onDeleted}
        >
          The entity <code>{entity.id}</code> and its {counted(entity.attributes.size, "attribute")} will be gone. Its
          history stays. A device that sends again makes it anew.
        </ConfirmButton>
      </div>
    </>
  );
}
