/** A button that opens a form in a dialog. A form that the server refuses stays open with the reason. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Role } from "../api/login";
import { Notice, sentence } from "./notice";
import { RoleButton } from "./role-button";

export function FormDialog(props: {
  /** The button's text, and the dialog's title. */
  label: string;
  /** What it takes to send the form. */
  role: Role;
  tone: "primary" | "plain";
  /** The text of the button that sends the form. */
  submit: string;
  /** The title of a refusal, such as "The bucket was not made". */
  refusal: string;
  /** What the form asks for; a promise that is rejected leaves it open. */
  act: (form: FormData) => Promise<void>;
  children: ComponentChildren;
}): ComponentChildren {
  const { label, role, tone, ...form } = props;
  const [open, setOpen] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  return (
    <>
      <RoleButton
        role={role}
        look={tone === "primary" ? "primary" : ""}
        onClick={() => {
          setOpen(true);
        }}
      >
        {label}
      </RoleButton>
      {open && (
        <dialog
          ref={dialog}
          class="confirm form-dialog"
          aria-labelledby={id}
          onClose={() => {
            setOpen(false);
          }}
        >
          <h2 id={id}>{label}</h2>
          <DialogForm {...form} close={() => dialog.current?.close()} />
        </dialog>
      )}
    </>
  );
}

function DialogForm(props: {
  submit: string;
  refusal: string;
  act: (form: FormData) => Promise<void>;
  close: () => void;
  children: ComponentChildren;
}): ComponentChildren {
  const { submit, refusal, act, close, children } = props;
  const [work, setWork] = useState<"none" | "asking" | { reason: string }>("none");
  const send = async (form: FormData): Promise<void> => {
    setWork("asking");
    try {
      await act(form);
      close();
    } catch (cause) {
      setWork({ reason: cause instanceof Error ? cause.message : String(cause) });
    }
  };
  return (
    <form
      class="dialog-fields"
      onSubmit={(event) => {
        event.preventDefault();
        if (work !== "asking") void send(new FormData(event.currentTarget));
      }}
    >
      {children}
      {typeof work === "object" && (
        <Notice tone="error" title={refusal}>
          {sentence(work.reason)}
        </Notice>
      )}
      <div class="confirm-buttons">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button type="submit" class="primary" aria-disabled={work === "asking"}>
          {submit}
        </button>
      </div>
    </form>
  );
}

/** A control with its label, and a hint below the label. */
export function Field(props: { label: string; hint?: string; children: ComponentChildren }): ComponentChildren {
  return (
    <label>
      <span>
        {props.label}
        {props.hint !== undefined && <small> {props.hint}</small>}
      </span>
      {props.children}
    </label>
  );
}

/** What was typed into a field, without the spaces around it. */
export function textOf(form: FormData, field: string): string {
  const value = form.get(field);
  return typeof value === "string" ? value.trim() : "";
}
