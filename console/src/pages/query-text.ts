/** The text of the query page: in the address bar, behind the `#`, so that no server on the way keeps it. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { FIRST_EXAMPLE } from "../query/examples";
import { go, href, type Place } from "../route";

const SETTLE_MS = 300;
/** What was written last, for a visitor who comes back by a link without a text. */
const KEY = "millstream.query";

export function queryHref(params: URLSearchParams, text: string): string {
  return href("query", Object.fromEntries(params), { q: text });
}

/** The text being written; the address bar follows when the hand rests. */
export function useQueryText(place: Place): [string, (text: string) => void] {
  const inAddress = place.fragment.get("q");
  const [text, setText] = useState(() => inAddress ?? sessionStorage.getItem(KEY) ?? FIRST_EXAMPLE.text);
  const written = useRef(text);
  const timer = useRef(0);
  const params = useRef(place.params);
  useEffect(() => {
    params.current = place.params;
  }, [place.params]);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );
  // The back button brings back the text that stood there.
  useEffect(() => {
    if (inAddress === null || inAddress === written.current) return;
    written.current = inAddress;
    setText(inAddress);
  }, [inAddress]);
  const write = useCallback((next: string): void => {
    written.current = next;
    setText(next);
    sessionStorage.setItem(KEY, next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      go(queryHref(params.current, next), "amend");
    }, SETTLE_MS);
  }, []);
  return [text, write];
}
