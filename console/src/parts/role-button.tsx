/** A button for what not every caller may do. Who may not sees why, as its title, and presses it in vain. */
import type { ComponentChildren } from "preact";
import type { Role } from "../api/login";
import { type Extent, useRefusal } from "../live/caller";

export function RoleButton(props: {
  role: Role;
  extent?: Extent | undefined;
  /** The style sheet's names for its look. */
  look?: string;
  /** Whether it rests for another reason. */
  isBusy?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}): ComponentChildren {
  const { role, extent, look = "", isBusy = false, onClick, children } = props;
  const refusal = useRefusal(role, extent);
  const rests = refusal !== undefined || isBusy;
  return (
    <button
      type="button"
      class={look}
      title={refusal}
      // It keeps the focus, and so its title, which a disabled one would not.
      aria-disabled={rests}
      onClick={() => {
        if (!rests) onClick();
      }}
    >
      {children}
    </button>
  );
}
