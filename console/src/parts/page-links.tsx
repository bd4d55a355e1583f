/** The links to all pages. Those that the bar has no room for stand in the menu "More". */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { follow, href, type PageName, type Place } from "../route";
import { Menu } from "./menu";

export const PAGE_TITLES: Record<PageName, string> = {
  overview: "Overview",
  devices: "Devices",
  entities: "Entities",
  topics: "Topics",
  query: "Query",
  jobs: "Jobs",
  store: "Store",
  access: "Access",
};

export const PAGE_NAMES = Object.keys(PAGE_TITLES) as PageName[];

export function PageLinks(props: {
  pages: readonly PageName[];
  current: Place["page"];
  tenant: string;
}): ComponentChildren {
  const { pages, current, tenant } = props;
  const nav = useRef<HTMLElement>(null);
  const shown = useFitting(nav, pages.length);
  const link = (page: PageName, close?: () => void): ComponentChildren => (
    <a
      key={page}
      href={href(page, { tenant })}
      onClick={(event) => {
        follow(event);
        close?.();
      }}
      aria-current={page === current ? "page" : undefined}
    >
      <NavIcon page={page} />
      {PAGE_TITLES[page]}
    </a>
  );
  const rest = pages.slice(shown);
  return (
    <nav class="page-links" aria-label="Pages" ref={nav}>
      {pages.slice(0, shown).map((page) => link(page))}
      {rest.length > 0 && (
        <div class={rest.some((page) => page === current) ? "more current" : "more"}>
          <Menu label={shown > 0 ? "More" : "Pages"} edge={shown > 0 ? "right" : "left"}>
            {(close) => rest.map((page) => link(page, close))}
          </Menu>
        </div>
      )}
      <div class="page-links-ruler" aria-hidden="true">
        {pages.map((page) => (
          <span key={page}>
            <NavIcon page={page} />
            {PAGE_TITLES[page]}
          </span>
        ))}
        <span class="more">More</span>
      </div>
    </nav>
  );
}

/** How many links fit, by the widths of the ruler, which holds all of them and "More" where nobody sees it. */
function useFitting(nav: { readonly current: HTMLElement | null }, count: number): number {
  const [shown, setShown] = useState(count);
  useLayoutEffect(() => {
    const element = nav.current;
    const ruler = element?.querySelector(".page-links-ruler");
    if (element === null || ruler === null || ruler === undefined) return;
    const measure = (): void => {
      const gap = parseFloat(getComputedStyle(element).columnGap) || 0;
      const widths = Array.from(ruler.children, (child) => child.getBoundingClientRect().width + gap);
      setShown(fitting(widths.slice(0, -1), widths.at(-1) ?? 0, element.clientWidth + gap));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    observer.observe(ruler);
    measure();
    return () => {
      observer.disconnect();
    };
  }, [nav, count]);
  return shown;
}

/** How many of the links fit, with "More" behind them if it is not all of them. */
export function fitting(links: readonly number[], more: number, room: number): number {
  const sum = (count: number): number => links.slice(0, count).reduce((width, link) => width + link, 0);
  if (sum(links.length) <= room) return links.length;
  let count = links.length - 1;
  while (count > 0 && sum(count) + more > room) count -= 1;
  return count;
}

function NavIcon({ page }: { page: PageName }): ComponentChildren {
  const paths: Record<PageName, string> = {
    overview: "M2 13h12M4 10V6M8 10V3M12 10V7",
    entities: "M8 14s5-4.5 5-8A5 5 0 0 0 3 6c0 3.5 5 8 5 8zM8 7.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z",
    devices: "M4.5 2h7v12h-7zM7 12h2M1.5 5.5v5M14.5 5.5v5",
    topics: "M2 4h9M2 8h12M2 12h7M13 3v2M11 11v2",
    query: "M3 4l4 4-4 4M8.5 12H13",
    jobs: "M2 3h4v4H2zM10 9h4v4h-4zM6 5h3v6h1",
    access: "M5.5 9.5a3 3 0 1 1 2.8-4H14v2.5h-2V10H9.5V8H8.3a3 3 0 0 1-2.8 1.5zM5.5 6.5h.01",
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
