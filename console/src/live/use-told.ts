/** A button that says for a moment what it has done. */
import { useEffect, useState } from "preact/hooks";

/** How long it says so. */
const TOLD_MS = 2_000;

/** What the button says, and the way to change that; after a moment it says `nothing` again. */
export function useTold<T extends string>(): ["nothing" | T, (told: T) => void] {
  const [told, setTold] = useState<"nothing" | T>("nothing");
  useEffect(() => {
    if (told === "nothing") return;
    const timer = window.setTimeout(() => {
      setTold("nothing");
    }, TOLD_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [told]);
  return [told, setTold];
}
