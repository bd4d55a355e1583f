/** The form below an attribute of an entity that changes or deletes it, and the one that adds an attribute. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Attribute } from "../api/entities";
import { addAttribute, deleteAttribute, type EntityName, setAttribute } from "../api/entity-changes";
import { type AttributeDraft, draftOf, NEW_ATTRIBUTE, typedValue } from "../forms/attribute-draft";
import { type Fault, faultOf, FieldError } from "../forms/fault";
import { AttributeFields } from "./attribute-fields";
import { ConfirmButton } from "./confirm";
import { Notice, sentence } from "./notice";

export function EditAttribute(props: {
  whose: EntityName;
  name: string;
  attribute: Attribute;
  onDone: () => void;
  onCancel: () => void;
}): ComponentChildren {
  const { whose, name, attribute, onDone, onCancel } = props;
  return (
    <AttributeForm
      label={`Change ${name}`}
      // The value as it was when the form was opened: what a device sends meanwhile does not change what is typed.
      initial={draftOf(name, attribute)}
      fixedName
      submit="Save"
      act={(draft) => setAttribute(whose, name, typedValue(draft))}
      onDone={onDone}
      onCancel={onCancel}
    >
      <ConfirmButton
        role="writer"
        label="Delete attribute"
        title={`Delete ${name}?`}
        tone="stop"
        act={() => deleteAttribute(whose, name)}
        onDone={onDone}
      >
        The entity loses this attribute with its metadata. Its history stays.
      </ConfirmButton>
    </AttributeForm>
  );
}

export function AddAttribute(props: {
  whose: EntityName;
  onDone: () => void;
  onCancel: () => void;
}): ComponentChildren {
  const { whose, onDone, onCancel } = props;
  return (
    <AttributeForm
      label="Add an attribute"
      initial={NEW_ATTRIBUTE}
      fixedName={false}
      submit="Add"
      act={async (draft) => {
        const name = draft.name.trim();
        if (name === "") throw new FieldError("name", "an attribute has a name: write one");
        await addAttribute(whose, name, typedValue(draft));
      }}
      onDone={onDone}
      onCancel={onCancel}
    />
  );
}

function AttributeForm(props: {
  label: string;
  initial: AttributeDraft;
  fixedName: boolean;
  submit: string;
  act: (draft: AttributeDraft) => Promise<void>;
  onDone: () => void;
  onCancel: () => void;
  /** Further buttons. */
  children?: ComponentChildren;
}): ComponentChildren {
  const { label, initial, fixedName, submit, act, onDone, onCancel, children } = props;
  const [draft, setDraft] = useState(initial);
  const [fault, setFault] = useState<Fault | null>(null);
  const [asking, setAsking] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    // The name of a new attribute comes first, the value of one that is there.
    const first = fixedName ? ".value-fields :is(input, textarea, select)" : "input";
    form.current?.querySelector<HTMLElement>(first)?.focus();
  }, [fixedName]);
  const send = async (): Promise<void> => {
    setAsking(true);
    setFault(null);
    try {
      await act(draft);
      onDone();
    } catch (cause) {
      setFault(
        faultOf(cause, [
          [/^attribute name|cannot be an attribute|already|exist/, "name"],
          [/^the type of/, "type"],
          [/attribute '/, "value"],
        ]),
      );
      setAsking(false);
    }
  };
  const isNamed = fault !== null && fault.field !== "" && !(fault.field === "name" && fixedName);
  return (
    <form
      ref={form}
      class="attribute-form"
      aria-label={label}
      onKeyDown={(event) => {
        // Escape leaves the form and not the whole entity; a question asked from here takes its own.
        const asked = event.target instanceof Element && event.target.closest("dialog") !== null;
        if (event.key !== "Escape" || asked) return;
        event.stopPropagation();
        onCancel();
      }}
      onSubmit={(event) => {
        event.preventDefault();
        if (!asking) void send();
      }}
    >
      <AttributeFields
        draft={draft}
        onChange={setDraft}
        fault={(field) => (isNamed && fault.field === field ? sentence(fault.message) : undefined)}
        fixedName={fixedName}
      />
      {fault !== null && !isNamed && (
        <Notice tone="error" title="Nothing was changed">
          {sentence(fault.message)}
        </Notice>
      )}
      <div class="form-buttons">
        {children}
        <span class="spring" />
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="primary" aria-disabled={asking}>
          {submit}
        </button>
      </div>
    </form>
  );
}
