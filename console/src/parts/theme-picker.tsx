/** The switch between light, dark and what the system says. */
import type { ComponentChildren } from "preact";
import { type Theme, THEMES, useTheme } from "../theme";

const LABELS: Record<Theme, string> = { system: "Auto", light: "Light", dark: "Dark" };

export function ThemePicker(): ComponentChildren {
  const [theme, setTheme] = useTheme();
  return (
    <select
      class="quiet-select"
      aria-label="Colours"
      value={theme}
      onChange={(event) => {
        const chosen = THEMES.find((name) => name === event.currentTarget.value);
        if (chosen !== undefined) setTheme(chosen);
      }}
    >
      {THEMES.map((name) => (
        <option key={name} value={name}>
          {LABELS[name]}
        </option>
      ))}
    </select>
  );
}
