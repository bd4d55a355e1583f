/** What everything is right now, and who is told when that changes. */
import type { ComponentChildren } from "preact";
import { useContext, useMemo } from "preact/hooks";
import { CallerContext } from "../live/caller";
import { EntitiesView } from "../parts/entities-view";
import { RegistrationsView } from "../parts/registrations-view";
import { SubscriptionsView } from "../parts/subscriptions-view";
import { follow, go, href } from "../route";
import { entitiesParams, type EntitiesPlace, entitiesPlace, type ListName, type Mover } from "./entities-place";

export function EntitiesPage({ params }: { params: URLSearchParams }): ComponentChildren {
  const place = useMemo(() => entitiesPlace(params), [params]);
  const move: Mover = (change, how) => {
    go(href("entities", entitiesParams({ ...place, ...change })), how);
  };
  const lists = <Lists place={place} />;
  const View = LISTS[place.list].view;
  return (
    <div class="page entities-page">
      <View place={place} lists={lists} onMove={move} />
    </div>
  );
}

const LISTS = {
  entities: { title: "Entities", view: EntitiesView },
  subscriptions: { title: "Subscriptions", view: SubscriptionsView },
  registrations: { title: "Registrations", view: RegistrationsView },
} as const;
const LIST_NAMES = Object.keys(LISTS) as ListName[];

/** The name of the list on the screen, and the way to the others. */
function Lists({ place }: { place: EntitiesPlace }): ComponentChildren {
  const { tenant } = place;
  // Subscriptions and registrations are those of the whole tenant.
  const isLimited = (useContext(CallerContext)?.limits ?? null) !== null;
  const others = LIST_NAMES.filter((list) => list === "entities" || !isLimited);
  return (
    <>
      <h1>{LISTS[place.list].title}</h1>
      <nav class="segments" aria-label="Lists">
        {others.map((list) => (
          <a
            key={list}
            href={href("entities", { tenant, list: list === "entities" ? "" : list })}
            onClick={follow}
            aria-current={list === place.list ? "page" : undefined}
          >
            {LISTS[list].title}
          </a>
        ))}
      </nav>
    </>
  );
}
