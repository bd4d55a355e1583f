/** The frame around every page: where one can go, whose data one sees, and whether the server is there. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { fetchStats, type Stats } from "./api/stats";
import { clock } from "./format";
import { History } from "./live/history";
import { latest, type Remote, usePolled } from "./live/remote";
import { DevicesPage } from "./pages/devices";
import { EntitiesPage } from "./pages/entities";
import { JobsPage } from "./pages/jobs";
import { OverviewPage } from "./pages/overview";
import { QueryPage } from "./pages/query";
import { StorePage } from "./pages/store";
import { TopicsPage } from "./pages/topics";
import { Notice } from "./parts/notice";
import { TenantPicker } from "./parts/tenant";
import { ThemePicker } from "./parts/theme-picker";
import { follow, href, type PageName, usePlace } from "./route";

const STATS_PERIOD_MS = 1_000;

const TITLES: Record<PageName, string> = {
  overview: "Overview",
  devices: "Devices",
  entities: "Entities",
  topics: "Topics",
  query: "Query",
  jobs: "Jobs",
  store: "Store",
};

export function App(): ComponentChildren {
  const place = usePlace();
  const tenant = place.params.get("tenant") ?? "";
  const stats = usePolled(
    useCallback(() => fetchStats(tenant), [tenant]),
    STATS_PERIOD_MS,
  );
  const samples = useHistory(stats);
  const title = place.page === "unknown" ? "Not found" : TITLES[place.page];
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
          <img src="/icon.svg" alt="" width="24" height="24" />
          Millstream
        </a>
        <nav aria-label="Pages">
          {(Object.keys(TITLES) as PageName[]).map((page) => (
            <a
              key={page}
              href={href(page, { tenant })}
              onClick={follow}
              aria-current={page === place.page ? "page" : undefined}
            >
              <NavIcon page={page} />
              {TITLES[page]}
            </a>
          ))}
        </nav>
        <div class="bar-end">
          <ServerState stats={stats} />
          <TenantPicker place={place} known={latest(stats)?.log.topics.map((topic) => topic.tenant) ?? []} />
          <ThemePicker />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {place.page === "overview" && <OverviewPage stats={stats} samples={samples} params={place.params} />}
        {place.page === "devices" && <DevicesPage params={place.params} />}
        {place.page === "entities" && <EntitiesPage params={place.params} />}
        {place.page === "topics" && <TopicsPage params={place.params} />}
        {place.page === "query" && <QueryPage place={place} />}
        {place.page === "jobs" && <JobsPage params={place.params} />}
        {place.page === "store" && <StorePage params={place.params} />}
        {place.page === "unknown" && (
          <Notice tone="error" title="There is no such page">
            <a href={href("overview", { tenant })} onClick={follow}>
              Go to the overview
            </a>
          </Notice>
        )}
      </main>
    </>
  );
}

function useHistory(stats: Remote<Stats>): History {
  const [samples, setSamples] = useState(History.empty);
  useEffect(() => {
    if (stats.kind === "live") setSamples((before) => before.with(stats.value, Math.round(stats.at / 1000)));
  }, [stats]);
  return samples;
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
        return ["warning", "Refused", stats.reason];
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

function NavIcon({ page }: { page: PageName }): ComponentChildren {
  const paths: Record<PageName, string> = {
    overview: "M2 13h12M4 10V6M8 10V3M12 10V7",
    entities: "M8 14s5-4.5 5-8A5 5 0 0 0 3 6c0 3.5 5 8 5 8zM8 7.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z",
    devices: "M4.5 2h7v12h-7zM7 12h2M1.5 5.5v5M14.5 5.5v5",
    topics: "M2 4h9M2 8h12M2 12h7M13 3v2M11 11v2",
    query: "M3 4l4 4-4 4M8.5 12H13",
    jobs: "M2 3h4v4H2zM10 9h4v4h-4zM6 5h3v6h1",
    store: "M3 4c0-2 10-2 10 0v8c0 2-10 2-10 0zM3 4c0 2 10 2 10 0M3 8c0 2 10 2 10 0",
  };
  return (
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path
        d={paths[page]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
