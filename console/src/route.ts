/**
 * The address bar is the state: which page, and everything the user chose on it.
 *
 * Each page has a path, and the server answers it with this same document, so that a reload or a shared link opens
 * what was on the screen.
 */
import { useEffect, useState } from "preact/hooks";
import { BASE } from "./base";

export const PAGES = {
  overview: `${BASE}/`,
  devices: `${BASE}/devices`,
  entities: `${BASE}/entities`,
  topics: `${BASE}/topics`,
  query: `${BASE}/query`,
  jobs: `${BASE}/jobs`,
  store: `${BASE}/store`,
  access: `${BASE}/access`,
} as const;

export type PageName = keyof typeof PAGES;

export interface Place {
  page: PageName | "unknown";
  params: URLSearchParams;
  /** What stands behind the `#`: for what is too long, or too private, to be sent to a server. */
  fragment: URLSearchParams;
}

export function placeOf(url: URL): Place {
  const path = withoutSlash(url.pathname);
  const page = (Object.keys(PAGES) as PageName[]).find((name) => withoutSlash(PAGES[name]) === path);
  return { page: page ?? "unknown", params: url.searchParams, fragment: new URLSearchParams(url.hash.slice(1)) };
}

function withoutSlash(path: string): string {
  return path.replace(/\/+$/, "");
}

type Choices = Readonly<Record<string, string>>;

/** The address of a page; choices that are empty leave no trace in it. */
export function href(page: PageName, params: Choices, fragment: Choices = {}): string {
  const query = chosen(params);
  const behind = chosen(fragment);
  return `${PAGES[page]}${query === "" ? "" : `?${query}`}${behind === "" ? "" : `#${behind}`}`;
}

function chosen(choices: Choices): string {
  return new URLSearchParams(Object.entries(choices).filter(([, value]) => value !== "")).toString();
}

/** `step`: the back button returns to where we were. `amend`: the same place, described anew. */
export type Move = "step" | "amend";

const MOVED = "millstream:moved";

export function go(address: string, move: Move): void {
  if (move === "step") history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  window.dispatchEvent(new Event(MOVED));
}

/** The place the address bar names, now and after every move. */
export function usePlace(): Place {
  const [place, setPlace] = useState(() => placeOf(new URL(location.href)));
  useEffect(() => {
    const moved = (): void => {
      setPlace(placeOf(new URL(location.href)));
    };
    window.addEventListener("popstate", moved);
    window.addEventListener(MOVED, moved);
    return () => {
      window.removeEventListener("popstate", moved);
      window.removeEventListener(MOVED, moved);
    };
  }, []);
  return place;
}

/** For links: follow within the page, unless the user asked for a new tab or window. */
export function follow(event: MouseEvent): void {
  const link = event.currentTarget;
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!plain || !(link instanceof HTMLAnchorElement)) return;
  event.preventDefault();
  go(link.href, "step");
}
