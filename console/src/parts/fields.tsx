/** Controls of a form, each with its label above and its fault below. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Labelled {
  label: string;
  /** The fault in the text that was typed. */
  error?: string | undefined;
  hint?: string | undefined;
}

interface Typed extends Labelled {
  value: string;
  placeholder?: string;
  onChange: (value: string) => void;
}

/** The attributes that tie a control to its label and to what is said of it. */
interface Ties {
  id: string;
  "aria-invalid": "true" | undefined;
  "aria-describedby": string | undefined;
}

function Labelling(props: Labelled & { children: (ties: Ties) => ComponentChildren }): ComponentChildren {
  const { label, error, hint, children } = props;
  const id = useId();
  const said = error ?? hint;
  const ties: Ties = {
    id,
    "aria-invalid": error === undefined ? undefined : "true",
    "aria-describedby": said === undefined ? undefined : `${id}-said`,
  };
  return (
    <div class="form-field">
      <label for={id}>{label}</label>
      {children(ties)}
      {said !== undefined && (
        <small
          id={`${id}-said`}
          class={error === undefined ? "hint" : "field-error"}
          role={error === undefined ? undefined : "alert"}
        >
          {said}
        </small>
      )}
    </div>
  );
}

/** Three literals where the types of inputs want one each: they differ in the roles that they may have. */
function typeOf(type: "text" | "password" | "datetime-local"): { type: "text" } {
  return { type } as { type: "text" };
}

export function TextField(
  props: Typed & { type?: "text" | "password" | "datetime-local"; numeric?: boolean; options?: string[] },
): ComponentChildren {
  const { value, placeholder, onChange, type = "text", numeric = false, options, ...labelled } = props;
  return (
    <Labelling {...labelled}>
      {(ties) => (
        <>
          <input
            {...ties}
            {...typeOf(type)}
            value={value}
            placeholder={placeholder}
            inputMode={numeric ? "decimal" : undefined}
            step={type === "datetime-local" ? 1 : undefined}
            list={options === undefined ? undefined : `${ties.id}-options`}
            spellcheck={false}
            autocomplete={type === "password" ? "new-password" : "off"}
            autocapitalize="off"
            onInput={(event) => {
              onChange(event.currentTarget.value);
            }}
          />
          {options !== undefined && (
            <datalist id={`${ties.id}-options`}>
              {options.map((option) => (
                <option key={option} value={option} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Labelling>
  );
}

export function AreaField(props: Typed & { rows: number }): ComponentChildren {
  const { value, placeholder, onChange, rows, ...labelled } = props;
  return (
    <Labelling {...labelled}>
      {(ties) => (
        <textarea
          {...ties}
          rows={rows}
          value={value}
          placeholder={placeholder}
          spellcheck={false}
          autocapitalize="off"
          onInput={(event) => {
            onChange(event.currentTarget.value);
          }}
        />
      )}
    </Labelling>
  );
}

export function SelectField<T extends string>(
  props: Labelled & { value: T; options: readonly (readonly [value: T, text: string])[]; onChange: (value: T) => void },
): ComponentChildren {
  const { value, options, onChange, ...labelled } = props;
  return (
    <Labelling {...labelled}>
      {(ties) => (
        <select
          {...ties}
          value={value}
          onChange={(event) => {
            const chosen = options.find(([option]) => option === event.currentTarget.value);
            if (chosen !== undefined) onChange(chosen[0]);
          }}
        >
          {options.map(([option, text]) => (
            <option key={option} value={option}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Labelling>
  );
}
