/** A live table of entities, a map beside it, and one entity in detail. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import {
  type Entity,
  entityKey,
  entityOf,
  type EntityType,
  fetchPage,
  fetchPlaced,
  fetchTypes,
  locationOf,
  PLACES_MAX,
} from "../api/entities";
import { counted, whole } from "../format";
import { useChanges } from "../live/changes";
import { latest, usePolled } from "../live/remote";
import { type Item, WorldMap } from "../map/map";
import type { View } from "../map/projection";
import { entitiesParams, type EntitiesPlace, type Mover } from "../pages/entities-place";
import { go, href } from "../route";
import { EntityDrawer } from "./entity-drawer";
import { NoEntities } from "./no-entities";
import { EntityFilters } from "./entity-filters";
import { EntityTable } from "./entity-table";
import { CreateEntity } from "./create-entity";
import { MappingNotice } from "./mapping-notice";
import { RemoteNotice } from "./notice";
import { Paging } from "./paging";
import { shortId } from "./value";

const PERIOD_MS = 1_000;
/** How long dragging must pause before the address bar follows. */
const SETTLE_MS = 300;
const TYPES_PERIOD_MS = 5_000;
/** Entities of other pages are only points on the map. */
const PLACES_PERIOD_MS = 10_000;
const NONE: readonly Entity[] = [];
const NO_TYPES: readonly EntityType[] = [];

export function EntitiesView(props: {
  place: EntitiesPlace;
  /** The way to other lists. */
  lists: ComponentChildren;
  onMove: Mover;
}): ComponentChildren {
  const { place, lists, onMove } = props;
  const { tenant, type, id, q, order, page, limit } = place;
  const [asked, setAsked] = useState(0);
  const remote = usePolled(
    useCallback(
      () =>
        fetchPage({ tenant, type, idPart: id, q, order, limit, offset: (page - 1) * limit }).then((found) => ({
          ...found,
          // Another number asks again at once.
          asked,
        })),
      [tenant, type, id, q, order, page, limit, asked],
    ),
    PERIOD_MS,
  );
  const found = usePolled(
    useCallback(() => fetchTypes(tenant).then((types) => ({ types, asked })), [tenant, asked]),
    TYPES_PERIOD_MS,
  );
  const types = latest(found)?.types ?? NO_TYPES;
  const known = latest(remote);
  // The server names the parameter that it refuses.
  const refusal = remote.kind === "refused" && q !== "" && /^q\b/.test(remote.reason) ? remote.reason : null;
  const entities = known?.entities ?? NONE;
  const changes = useChanges(entities);
  const [hovered, setHovered] = useState<string | null>(null);
  const [view, setView] = useView(place);
  const elsewhere = usePlacedElsewhere(place, known !== null && known.total > entities.length);
  const items = useMemo(() => mapItems(entities, elsewhere), [entities, elsewhere]);
  const hasMap = place.map === "shown" && items.length > 0;
  const selected = place.selected === null ? null : entityKey(place.selected);

  const select = (key: string): void => {
    onMove({ selected: entityOf(key) }, "step");
  };

  return (
    <>
      <div class="page-head">
        {lists}
        <EntityFilters
          place={place}
          types={types}
          refusal={refusal}
          isPlaced={items.length > 0}
          onChange={(change) => {
            onMove({ ...change, page: 1 }, "amend");
          }}
          onMap={(map) => {
            onMove({ map }, "amend");
          }}
        >
          <CreateEntity
            tenant={tenant}
            types={types.map((known) => known.type)}
            onMade={(selected) => {
              setAsked((before) => before + 1);
              onMove({ selected, history: "" }, "step");
            }}
          />
        </EntityFilters>
      </div>
      <MappingNotice tenant={tenant} />
      {remote.kind === "stalled" && <RemoteNotice remote={remote} what="entities" />}
      <div class={!hasMap && place.selected === null ? "entities-body wide" : "entities-body"}>
        <section class="card entities-list" aria-label="Entities">
          {remote.kind !== "stalled" && refusal === null && <RemoteNotice remote={remote} what="entities" />}
          {((remote.kind === "live" && entities.length === 0) || refusal !== null) && (
            <NoEntities place={place} refused={refusal !== null} total={known?.total ?? 0} onMove={onMove} />
          )}
          {entities.length > 0 && (
            <EntityTable
              entities={entities}
              changes={changes}
              order={order}
              onOrder={(next) => {
                onMove({ order: next, page: 1 }, "amend");
              }}
              hovered={hovered}
              selected={selected}
              onHover={setHovered}
              onSelect={select}
            />
          )}
          {known !== null && known.total > 0 && (
            <Paging
              page={page}
              limit={limit}
              shown={entities.length}
              total={known.total}
              nouns={["entity", "entities"]}
              onChange={(change) => {
                onMove(change, "step");
              }}
            />
          )}
        </section>
        <div class="entities-side">
          {hasMap && (
            <section class="card entities-map" aria-label="Map">
              <WorldMap
                items={items}
                hovered={hovered}
                selected={selected}
                onHover={setHovered}
                onSelect={select}
                view={view}
                onView={setView}
              />
              {(known?.total ?? 0) > PLACES_MAX && (
                <p class="map-note">
                  The first {whole(PLACES_MAX)} of {counted(known?.total ?? 0, "entity", "entities")}
                </p>
              )}
            </section>
          )}
          {place.selected !== null && (
            <EntityDrawer
              key={selected}
              tenant={tenant}
              id={place.selected.id}
              type={place.selected.type}
              history={{ attribute: place.history, span: place.span }}
              onHistory={({ attribute, span }) => {
                onMove({ history: attribute, span }, "amend");
              }}
              onClose={() => {
                onMove({ selected: null, history: "" }, "step");
              }}
              onDeleted={() => {
                setAsked((before) => before + 1);
                onMove({ selected: null, history: "" }, "amend");
              }}
            />
          )}
        </div>
      </div>
    </>
  );
}

/** The entities of all pages that have a place. */
function usePlacedElsewhere({ tenant, type, id, q }: EntitiesPlace, hasMore: boolean): readonly Entity[] {
  const ask = useCallback(
    async () => (hasMore ? fetchPlaced({ tenant, type, idPart: id, q }) : []),
    [tenant, type, id, q, hasMore],
  );
  return latest(usePolled(ask, PLACES_PERIOD_MS)) ?? NONE;
}

/** What the map shows: the entities of this page as they are now, and those of other pages. */
function mapItems(entities: readonly Entity[], elsewhere: readonly Entity[]): Item[] {
  const here = new Set(entities.map(entityKey));
  const all = [...entities, ...elsewhere.filter((entity) => !here.has(entityKey(entity)))];
  return all.flatMap((entity) => {
    const point = locationOf(entity);
    const name = entity.attributes.get("name")?.value;
    const label = typeof name === "string" && name !== "" ? name : shortId(entity.id);
    return point === null ? [] : [{ key: entityKey(entity), label, point }];
  });
}

/** The map's view moves at once; the address bar follows when the hand rests. */
function useView(place: EntitiesPlace): [View | null, (view: View | null) => void] {
  const [view, setView] = useState(place.view);
  const current = useRef(place);
  useEffect(() => {
    current.current = place;
  }, [place]);
  const timer = useRef(0);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );
  const moved = useCallback((next: View | null): void => {
    setView(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      go(href("entities", entitiesParams({ ...current.current, view: next })), "amend");
    }, SETTLE_MS);
  }, []);
  return [view, moved];
}
