/** A button that opens a small panel below it. Escape, a click elsewhere, or leaving it by keyboard closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function Menu(props: {
  label: string;
  /** Which edge of the button the panel keeps to, where there is room. */
  edge: "left" | "right";
  disabled?: boolean;
  children: (close: () => void) => ComponentChildren;
}): ComponentChildren {
  const { label, edge, disabled = false, children } = props;
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return;
    const elsewhere = (event: Event): void => {
      if (event.target instanceof Node && root.current?.contains(event.target) === false) setOpen(false);
    };
    document.addEventListener("pointerdown", elsewhere);
    document.addEventListener("focusin", elsewhere);
    return () => {
      document.removeEventListener("pointerdown", elsewhere);
      document.removeEventListener("focusin", elsewhere);
    };
  }, [open]);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  return (
    <div
      class="menu"
      ref={root}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        event.stopPropagation();
        close();
      }}
    >
      <button
        type="button"
        class="menu-button"
        ref={button}
        disabled={disabled}
        aria-expanded={open}
        onClick={() => {
          setOpen(!open);
        }}
      >
        {label}
      </button>
      {open && (
        <div class={`menu-panel ${edge}`} role="group" aria-label={label}>
          {children(close)}
        </div>
      )}
    </div>
  );
}
