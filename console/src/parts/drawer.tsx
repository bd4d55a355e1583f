/** One thing of a list in detail, beside the list. It has the focus when it opens, and Escape closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Drawer(props: {
  title: string;
  subtitle: ComponentChildren;
  onClose: () => void;
  children: ComponentChildren;
}): ComponentChildren {
  const { title, subtitle, onClose, children } = props;
  const panel = useRef<HTMLElement>(null);
  useFocusWhileOpen(panel);
  return (
    <aside
      class="drawer"
      ref={panel}
      tabIndex={-1}
      aria-labelledby="drawer-title"
      onKeyDown={(event) => {
        // A question that is asked from here takes its Escape itself.
        const asked = event.target instanceof Element && event.target.closest("dialog") !== null;
        if (event.key === "Escape" && !asked) onClose();
      }}
    >
      <header>
        <div>
          <h2 id="drawer-title">{title}</h2>
          <p class="quiet">{subtitle}</p>
        </div>
        <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </header>
      {children}
    </aside>
  );
}

/** The panel has the focus when it opens; what had it before gets it back. */
function useFocusWhileOpen(panel: { current: HTMLElement | null }): void {
  useEffect(() => {
    const before = document.activeElement;
    panel.current?.focus({ preventScroll: true });
    return () => {
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, [panel]);
}
