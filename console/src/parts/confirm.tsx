/** A button for what cannot be taken back: it asks before it acts. Escape and "Cancel" leave everything as it was. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Role } from "../api/login";
import type { Extent } from "../live/caller";
import { Notice, sentence } from "./notice";
import { RoleButton } from "./role-button";

type Work = { kind: "none" } | { kind: "asking" } | { kind: "failed"; reason: string };

export function ConfirmButton(props: {
  label: string;
  /** What it takes to act. */
  role: Role;
  extent?: Extent;
  /** The question. */
  title: string;
  /** The consequences. */
  children: ComponentChildren;
  tone: "plain" | "stop";
  /** What has to be typed before it acts. */
  typed?: string;
  act: () => Promise<void>;
  onDone: () => void;
}): ComponentChildren {
  const { label, role, extent, title, children, tone, typed = "", act, onDone } = props;
  const [open, setOpen] = useState(false);
  const [work, setWork] = useState<Work>({ kind: "none" });
  const [text, setText] = useState("");
  const ready = text === typed && work.kind !== "asking";
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  const confirm = async (): Promise<void> => {
    setWork({ kind: "asking" });
    try {
      await act();
      setOpen(false);
      onDone();
    } catch (cause) {
      setWork({ kind: "failed", reason: cause instanceof Error ? cause.message : String(cause) });
    }
  };
  const look = tone === "stop" ? "stop" : "";
  return (
    <>
      <RoleButton
        role={role}
        extent={extent}
        look={look}
        onClick={() => {
          setWork({ kind: "none" });
          setText("");
          setOpen(true);
        }}
      >
        {label}
      </RoleButton>
      {open && (
        <dialog
          ref={dialog}
          class="confirm"
          aria-labelledby={id}
          onClose={() => {
            setOpen(false);
          }}
        >
          <h2 id={id}>{title}</h2>
          <p>{children}</p>
          {typed !== "" && (
            <label class="confirm-typed">
              <span>
                Type <b>{typed}</b> to go on
              </span>
              <input
                value={text}
                autocomplete="off"
                autocapitalize="off"
                spellcheck={false}
                onInput={(event) => {
                  setText(event.currentTarget.value);
                }}
              />
            </label>
          )}
          {work.kind === "failed" && (
            <Notice tone="error" title="Nothing was done">
              {sentence(work.reason)}
            </Notice>
          )}
          <div class="confirm-buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              Cancel
            </button>
            <button
              type="button"
              class={look}
              aria-disabled={!ready}
              onClick={() => {
                if (ready) void confirm();
              }}
            >
              {label}
            </button>
          </div>
        </dialog>
      )}
    </>
  );
}
