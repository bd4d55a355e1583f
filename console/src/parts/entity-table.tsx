/** Entities as rows, their attributes as columns. A cell that changes is lit for a moment. */
import type { ComponentChildren } from "preact";
import { type Entity, entityKey, isSortable, measuredAt } from "../api/entities";
import { ago } from "../format";
import { cellKey, changeClass, type Changes } from "../live/changes";
import { SortHeader } from "./sort-header";
import { alignment, Id, Value } from "./value";

/** More columns than this are left to the detail view. */
const COLUMNS_MAX = 16;

export interface EntityTableProps {
  entities: readonly Entity[];
  changes: Changes;
  /** As in `orderBy`. */
  order: string;
  hovered: string | null;
  selected: string | null;
  onHover: (key: string | null) => void;
  onSelect: (key: string) => void;
  onOrder: (order: string) => void;
}

export function EntityTable(props: EntityTableProps): ComponentChildren {
  const { entities, changes, order, hovered, selected, onHover, onSelect, onOrder } = props;
  const { shown, hidden } = attributeColumns(entities);
  const now = Date.now();
  const severalTypes = new Set(entities.map((entity) => entity.type)).size > 1;
  return (
    <div class="scroll">
      <table
        class="entities"
        onMouseLeave={() => {
          onHover(null);
        }}
      >
        <thead>
          <tr>
            <SortHeader by="id" order={order} onOrder={onOrder}>
              Entity
            </SortHeader>
            {severalTypes && (
              <SortHeader by="type" order={order} onOrder={onOrder}>
                Type
              </SortHeader>
            )}
            <th scope="col" title="The server sorts by values, and this is metadata">
              Measured
            </th>
            {shown.map((name) =>
              isSortable(name) ? (
                <SortHeader
                  key={name}
                  by={name}
                  order={order}
                  class={columnAlignment(entities, name)}
                  onOrder={onOrder}
                >
                  {name}
                </SortHeader>
              ) : (
                <th key={name} scope="col" class={columnAlignment(entities, name)}>
                  {name}
                </th>
              ),
            )}
            {hidden > 0 && <th scope="col">+{hidden} more</th>}
          </tr>
        </thead>
        <tbody>
          {entities.map((entity) => {
            const key = entityKey(entity);
            const measured = measuredAt(entity);
            return (
              <tr
                key={key}
                class={key === hovered ? "hovered" : ""}
                aria-current={key === selected ? "true" : undefined}
                onMouseEnter={() => {
                  onHover(key);
                }}
                onClick={() => {
                  onSelect(key);
                }}
              >
                <th scope="row">
                  <button
                    type="button"
                    class="row-button"
                    onFocus={() => {
                      onHover(key);
                    }}
                    onClick={(event) => {
                      event.stopPropagation();
                      onSelect(key);
                    }}
                  >
                    <Id id={entity.id} />
                  </button>
                </th>
                {severalTypes && <td>{entity.type}</td>}
                <td class="quiet" title={measured === null ? undefined : new Date(measured).toISOString()}>
                  {measured === null ? "–" : ago(measured, now)}
                </td>
                {shown.map((name) => {
                  const value = entity.attributes.get(name)?.value;
                  const changed = changeClass(changes.get(cellKey(entity, name)));
                  return (
                    <td key={name} class={`${alignment(value)} ${changed}`}>
                      <Value value={value} />
                    </td>
                  );
                })}
                {hidden > 0 && <td />}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** The attributes worth a column: in the order they appear, without places, which the map shows. */
export function attributeColumns(entities: readonly Entity[]): { shown: string[]; hidden: number } {
  const names = new Set<string>();
  for (const entity of entities) {
    for (const [name, { type }] of entity.attributes) {
      if (!type.startsWith("geo:")) names.add(name);
    }
  }
  const all = [...names];
  return { shown: all.slice(0, COLUMNS_MAX), hidden: Math.max(0, all.length - COLUMNS_MAX) };
}

function columnAlignment(entities: readonly Entity[], name: string): string {
  const values = entities.map((entity) => entity.attributes.get(name)?.value).filter((value) => value !== undefined);
  return values.length > 0 && values.every((value) => typeof value === "number" || value === null) ? "number" : "";
}
