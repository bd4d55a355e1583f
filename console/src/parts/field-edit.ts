/** Changes of a text field that its user can undo, as if they had been typed. */

export interface FieldEdit {
  /** The text that is replaced. */
  from: number;
  to: number;
  text: string;
  /** The selection afterwards; the caret stands behind the text if it is left out. */
  select?: { from: number; to: number };
}

/** The old way of editors, and still the only one that a browser can undo. Its type is marked as deprecated. */
interface CommandTarget {
  execCommand: (command: "insertText" | "delete", showUi: false, text: string) => boolean;
}

/** Changes the field; its `input` event tells of it. */
export function applyEdit(field: HTMLTextAreaElement, edit: FieldEdit): void {
  const { from, to, text, select } = edit;
  field.focus();
  field.setSelectionRange(from, to);
  const target = field.ownerDocument as unknown as CommandTarget;
  if (text !== "") target.execCommand("insertText", false, text);
  else if (from < to) target.execCommand("delete", false, "");
  if (select !== undefined) field.setSelectionRange(select.from, select.to);
}
