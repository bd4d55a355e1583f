/** A button that opens a form in a dialog. A refusal stands at the field that it is about, and the form stays as it was typed. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Role } from "../api/login";
import { type Fault, type FaultRule, faultOf } from "../forms/fault";
import { Notice, sentence } from "./notice";
import { RoleButton } from "./role-button";

/** The draft of a form, for its fields. */
export interface DraftForm<T> {
  draft: T;
  change: (part: Partial<T>) => void;
  /** The fault of a field, if it has one. */
  fault: (field: string) => string | undefined;
}

interface DialogProps<T> {
  title: string;
  /** The text of the button that sends the form. */
  submit: string;
  /** The title of a refusal that is about no field in particular. */
  refusal: string;
  initial: T;
  /** Fields that the form has at the moment. */
  fields: (draft: T) => readonly string[];
  rules: (draft: T) => readonly FaultRule[];
  act: (draft: T) => Promise<void>;
  children: (form: DraftForm<T>) => ComponentChildren;
}

export function DraftDialog<T extends object>(
  props: DialogProps<T> & { label: string; role: Role; tone: "primary" | "plain" },
): ComponentChildren {
  const { label, role, tone, ...dialog } = props;
  const [open, setOpen] = useState(false);
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
        <OpenDialog
          {...dialog}
          onClose={() => {
            setOpen(false);
          }}
        />
      )}
    </>
  );
}

function OpenDialog<T extends object>(props: DialogProps<T> & { onClose: () => void }): ComponentChildren {
  const { title, submit, refusal, initial, fields, rules, act, children, onClose } = props;
  const [draft, setDraft] = useState(initial);
  const [fault, setFault] = useState<Fault | null>(null);
  const [asking, setAsking] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  useEffect(() => {
    if (fault !== null) dialog.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus();
  }, [fault]);
  const send = async (): Promise<void> => {
    setAsking(true);
    setFault(null);
    try {
      await act(draft);
      dialog.current?.close();
    } catch (cause) {
      setFault(faultOf(cause, rules(draft)));
      setAsking(false);
    }
  };
  const isNamed = fault !== null && fields(draft).includes(fault.field);
  return (
    <dialog ref={dialog} class="confirm draft-dialog" aria-labelledby={id} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!asking) void send();
        }}
      >
        <h2 id={id}>{title}</h2>
        <div class="draft-fields">
          {children({
            draft,
            change: (part) => {
              setDraft((before) => ({ ...before, ...part }));
              setFault(null);
            },
            fault: (field) => (isNamed && fault.field === field ? sentence(fault.message) : undefined),
          })}
          {fault !== null && !isNamed && (
            <Notice tone="error" title={refusal}>
              {sentence(fault.message)}
            </Notice>
          )}
        </div>
        <div class="confirm-buttons">
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button type="submit" class="primary" aria-disabled={asking}>
            {submit}
          </button>
        </div>
      </form>
    </dialog>
  );
}
