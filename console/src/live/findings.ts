/** What the server finds wrong with a text, or odd, while it is being written. */
import { useEffect, useState } from "preact/hooks";
import type { Finding } from "../api/http";
import { validate } from "../api/queries";

/** How long typing must pause before the server is asked: half a word is always wrong. */
const SETTLE_MS = 700;
const NONE: readonly Finding[] = [];

/** Of exactly this text; none while it is not known. */
export function useFindings(tenant: string, text: string): readonly Finding[] {
  const [found, setFound] = useState<{ text: string; findings: readonly Finding[] }>({ text: "", findings: NONE });
  useEffect(() => {
    if (text.trim() === "") return;
    const abort = new AbortController();
    const timer = window.setTimeout(() => {
      validate(tenant, text, abort.signal)
        .then((findings) => {
          setFound({ text, findings });
        })
        // Whether the server answers at all is told elsewhere.
        .catch(() => undefined);
    }, SETTLE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [tenant, text]);
  return found.text === text ? found.findings : NONE;
}
