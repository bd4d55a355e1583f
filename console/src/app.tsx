/** The frame around every page: who one is, where one can go, whose data one sees, and whether the server is there. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { type Login, ownTenant } from "./api/login";
import { CALLBACK_PATH } from "./api/oidc";
import type { Stats } from "./api/stats";
import { BASE } from "./base";
import { clock } from "./format";
import { Addresses, AddressesContext } from "./live/addresses";
import { CallerContext, limitsText, mayOpen } from "./live/caller";
import type { History } from "./live/history";
import { latest, type Remote } from "./live/remote";
import { useLogin } from "./live/use-login";
import { useStats } from "./live/use-stats";
import { AccessPage } from "./pages/access";
import { DevicesPage } from "./pages/devices";
import { EntitiesPage } from "./pages/entities";
import { JobsPage } from "./pages/jobs";
import { LoginPage } from "./pages/login";
import { OverviewPage } from "./pages/overview";
import { QueryPage } from "./pages/query";
import { StorePage } from "./pages/store";
import { TopicsPage } from "./pages/topics";
import { Account } from "./parts/account";
import { Notice, sentence } from "./parts/notice";
import { PAGE_NAMES, PAGE_TITLES, PageLinks } from "./parts/page-links";
import { TENANT_DEFAULT, TenantPicker } from "./parts/tenant";
import { ThemePicker } from "./parts/theme-picker";
import { follow, go, href, type PageName, PAGES, type Place, usePlace } from "./route";

export function App(): ComponentChildren {
  const { state, logOut } = useLogin();
  switch (state.kind) {
    case "asking":
      return null;
    case "failed":
      return (
        <main class="page">
          <Notice tone="error" title="The server does not answer">
            {sentence(state.reason)} This page goes on trying.
          </Notice>
        </main>
      );
    case "needed":
      return <LoginPage key={state.reason} login={state.login} reason={state.reason} />;
    case "in":
      return <Console login={state.login} logOut={logOut} />;
  }
}

function Console({ login, logOut }: { login: Login; logOut: () => void }): ComponentChildren {
  const own = ownTenant(login.caller);
  const place = usePlaceOf(own);
  const tenant = place.params.get("tenant") ?? "";
  const { stats, samples } = useStats(tenant);
  const addresses = useAddresses(stats);
  const title = titleOf(place);
  useEffect(() => {
    document.title = `${title} · Millstream`;
  }, [title]);

  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          // What stands behind the # belongs to the page.
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to content
      </a>
      <header class="bar">
        <a class="brand" href={href("overview", { tenant })} onClick={follow}>
          <img src={`${BASE}/icon.svg`} alt="" width="24" height="24" />
          <span>Millstream</span>
        </a>
        <PageLinks pages={openPages(login)} current={place.page} tenant={tenant} />
        <div class="bar-end">
          <ServerState stats={stats} />
          <TenantPicker place={place} own={own} known={latest(stats)?.log.topics.map((topic) => topic.tenant) ?? []} />
          <ThemePicker />
          {login.caller !== null && <Account caller={login.caller} logOut={logOut} />}
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {own !== null && !isOf(tenant, own) ? (
          <OtherTenant place={place} tenant={tenant} own={own} />
        ) : (
          <CallerContext.Provider value={login.caller}>
            <AddressesContext.Provider value={addresses}>
              <PageOf place={place} login={login} stats={stats} samples={samples} />
            </AddressesContext.Provider>
          </CallerContext.Provider>
        )}
      </main>
    </>
  );
}

function titleOf({ page }: Place): string {
  return page === "unknown" ? "Not found" : PAGE_TITLES[page];
}

function PageOf(props: { place: Place; login: Login; stats: Remote<Stats>; samples: History }): ComponentChildren {
  const { place, login, stats, samples } = props;
  const { page, params } = place;
  if (page !== "unknown" && !mayOpen(login.caller, page)) return <OutOfLimits place={place} login={login} />;
  switch (page) {
    case "overview":
      return <OverviewPage stats={stats} samples={samples} params={params} />;
    case "devices":
      return <DevicesPage params={params} />;
    case "entities":
      return <EntitiesPage params={params} />;
    case "topics":
      return <TopicsPage params={params} />;
    case "query":
      return <QueryPage place={place} />;
    case "jobs":
      return <JobsPage params={params} />;
    case "store":
      return <StorePage params={params} />;
    case "access":
      return <AccessPage params={params} login={login} />;
    case "unknown":
      return (
        <div class="page">
          <div class="page-head">
            <h1>Not found</h1>
          </div>
          <Notice tone="error" title="There is no such page">
            Nothing is at <code>{location.pathname}</code>.{" "}
            <a href={href("overview", { tenant: params.get("tenant") ?? "" })} onClick={follow}>
              Go to the overview
            </a>
          </Notice>
        </div>
      );
  }
}

/** The pages on which the server shows the caller something. */
function openPages({ caller }: Login): PageName[] {
  return PAGE_NAMES.filter((page) => mayOpen(caller, page));
}

function OutOfLimits({ place, login }: { place: Place; login: Login }): ComponentChildren {
  const limits = login.caller?.limits ?? null;
  const tenant = place.params.get("tenant") ?? "";
  return (
    <div class="page">
      <div class="page-head">
        <h1>{titleOf(place)}</h1>
      </div>
      <Notice tone="quiet" title="This page takes a login without limits">
        {limits !== null && `Yours is good for ${limitsText(limits)}.`}
        {openPages(login).map((page) => (
          <span key={page}>
            {" "}
            <a href={href(page, { tenant })} onClick={follow}>
              {PAGE_TITLES[page]}
            </a>
          </span>
        ))}
      </Notice>
    </div>
  );
}

/** The place in the address bar. A caller of one tenant is always in that tenant unless the address names another. */
function usePlaceOf(own: string | null): Place {
  const place = usePlace();
  useEffect(() => {
    if (location.pathname === CALLBACK_PATH) go(PAGES.overview, "amend");
  }, [place]);
  return useMemo(() => {
    if (own === null || own === TENANT_DEFAULT || (place.params.get("tenant") ?? "") !== "") return place;
    const params = new URLSearchParams(place.params);
    params.set("tenant", own);
    return { ...place, params };
  }, [place, own]);
}

function isOf(tenant: string, own: string): boolean {
  return (tenant === "" ? TENANT_DEFAULT : tenant) === own;
}

function OtherTenant({ place, tenant, own }: { place: Place; tenant: string; own: string }): ComponentChildren {
  const page = place.page === "unknown" ? "overview" : place.page;
  return (
    <div class="page">
      <Notice tone="warning" title={`This address is of tenant ${tenant}`}>
        Your login is good for tenant {own}.{" "}
        <a href={href(page, { tenant: own === TENANT_DEFAULT ? "" : own })} onClick={follow}>
          Show this page of {own}
        </a>
      </Notice>
    </div>
  );
}

function useAddresses(stats: Remote<Stats>): Addresses {
  return useMemo(() => new Addresses(latest(stats)?.listeners ?? null, location), [stats]);
}

function ServerState({ stats }: { stats: Remote<Stats> }): ComponentChildren {
  const [tone, text, title] = ((): [string, string, string] => {
    switch (stats.kind) {
      case "loading":
        return ["quiet", "Connecting", "No answer yet"];
      case "live":
        return ["good", "Live", `Version ${stats.value.version}; last answer at ${clock(stats.at)}`];
      case "stalled":
        return ["warning", "Stalled", `${stats.reason}; last answer at ${clock(stats.since)}`];
      case "refused":
        // The server is there; its figures are for others.
        return stats.status === 403 ? ["quiet", "Connected", stats.reason] : ["warning", "Refused", stats.reason];
      case "failed":
        return ["error", "Offline", stats.reason];
    }
  })();
  return (
    <span class={`state ${tone}`} role="status" aria-label={`Server: ${text}`} title={title}>
      {text}
    </span>
  );
}
