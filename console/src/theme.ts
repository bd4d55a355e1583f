/** Light, dark, or what the system says; kept for this browser. */
import { useEffect, useState } from "preact/hooks";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "millstream.theme";

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return THEMES.find((theme) => theme === value) ?? "system";
}

/** Shows the colours that were chosen before anything is drawn. */
export function showStoredTheme(): void {
  document.documentElement.dataset.theme = stored();
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState(stored);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(KEY, theme);
  }, [theme]);
  return [theme, setTheme];
}

/**
 * A number that changes whenever the page's colours do. Canvases are painted with colours of the style sheet, so
 * they paint again when this changes.
 */
export function useColoursVersion(): number {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const changed = (): void => {
      setVersion((before) => before + 1);
    };
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const chosen = new MutationObserver(changed);
    system.addEventListener("change", changed);
    chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      system.removeEventListener("change", changed);
      chosen.disconnect();
    };
  }, []);
  return version;
}

/** What a colour of the style sheet (`--name`) is right now, in a form that a canvas takes. */
export function colourReader(element: Element): (name: string) => string {
  const probe = document.createElement("span");
  return (name) => {
    probe.style.color = `var(${name})`;
    element.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
}
