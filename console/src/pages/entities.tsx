/** What everything is right now, and who is told when that changes. */
import type { ComponentChildren } from "preact";
import { useContext, useMemo } from "preact/hooks";
import { CallerContext } from "../live/caller";
import { EntitiesView } from "../parts/entities-view";
import { SubscriptionsView } from "../parts/subscriptions-view";
import { follow, go, href } from "../route";
import { entitiesParams, type EntitiesPlace, entitiesPlace, type Mover } from "./entities-place";

export function EntitiesPage({ params }: { params: URLSearchParams }): ComponentChildren {
  const place = useMemo(() => entitiesPlace(params), [params]);
  const move: Mover = (change, how) => {
    go(href("entities", entitiesParams({ ...place, ...change })), how);
  };
  const lists = <Lists place={place} />;
  return (
    <div class="page entities-page">
      {place.list === "entities" ? (
        <EntitiesView place={place} lists={lists} onMove={move} />
      ) : (
        <SubscriptionsView place={place} lists={lists} onMove={move} />
      )}
    </div>
  );
}

const LISTS = { entities: "Entities", subscriptions: "Subscriptions" } as const;
const LIST_NAMES = Object.keys(LISTS) as (keyof typeof LISTS)[];

/** The name of the list on the screen, and the way to the other one. */
function Lists({ place }: { place: EntitiesPlace }): ComponentChildren {
  const { tenant } = place;
  // Subscriptions are those of the whole tenant.
  const isLimited = (useContext(CallerContext)?.limits ?? null) !== null;
  const others = LIST_NAMES.filter((list) => list === "entities" || !isLimited);
  return (
    <>
      <h1>{LISTS[place.list]}</h1>
      <nav class="segments" aria-label="Lists">
        {others.map((list) => (
          <a
            key={list}
            href={href("entities", { tenant, list: list === "entities" ? "" : list })}
            onClick={follow}
            aria-current={list === place.list ? "page" : undefined}
          >
            {LISTS[list]}
          </a>
        ))}
      </nav>
    </>
  );
}
