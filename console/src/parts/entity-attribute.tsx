/** One attribute of an entity in detail: value, type, metadata, its history and the form that changes it. */
import type { ComponentChildren } from "preact";
import { type Attribute, pointOf } from "../api/entities";
import type { EntityName } from "../api/entity-changes";
import { useRefusal } from "../live/caller";
import type { SpanName } from "../live/attribute-history";
import { EditAttribute } from "./attribute-form";
import { AttributeHistory } from "./attribute-history";
import { textOf } from "./value";

export function EntityAttribute(props: {
  whose: EntityName;
  name: string;
  attribute: Attribute;
  /** Of the whole entity. */
  measured: number | null;
  changed: string;
  /** Its history is open. */
  history: boolean;
  /** The form that changes it is open. */
  form: boolean;
  span: SpanName;
  onHistory: (open: boolean) => void;
  onForm: (open: boolean) => void;
  onSpan: (span: SpanName) => void;
  onChanged: () => void;
}): ComponentChildren {
  const { whose, name, attribute, measured, changed, history, form, span, onHistory, onForm, onSpan, onChanged } =
    props;
  const mayEdit = useRefusal("writer") === undefined;
  return (
    <div>
      <dt>
        <button
          type="button"
          class="disclosure"
          aria-expanded={history}
          title="History"
          onClick={() => {
            onHistory(!history);
          }}
        >
          {name}
        </button>
        <small>{attribute.type}</small>
      </dt>
      <dd class={changed}>
        <AttributeValue attribute={attribute} />
        <MetadataLines attribute={attribute} entityMeasured={measured} />
      </dd>
      {mayEdit && (
        <dd class="attribute-edit">
          <button
            type="button"
            class="link"
            aria-label={`Edit ${name}`}
            aria-expanded={form}
            onClick={() => {
              onForm(!form);
            }}
          >
            Edit
          </button>
        </dd>
      )}
      {history && (
        <dd class="wide">
          <AttributeHistory
            whose={{ ...whose, attribute: name }}
            isNumber={typeof attribute.value === "number"}
            span={span}
            onSpan={onSpan}
          />
        </dd>
      )}
      {form && (
        <dd class="wide">
          <EditAttribute
            whose={whose}
            name={name}
            attribute={attribute}
            onDone={onChanged}
            onCancel={() => {
              onForm(false);
            }}
          />
        </dd>
      )}
    </div>
  );
}

function AttributeValue({ attribute }: { attribute: Attribute }): ComponentChildren {
  const text = textOf(attribute.value);
  const point = pointOf(attribute);
  if (point === null) return <span>{text}</span>;
  const [longitude, latitude] = point;
  return (
    <span title={text}>
      {latitude.toFixed(5)}, {longitude.toFixed(5)}
    </span>
  );
}

/** Metadata, without a `TimeInstant` that says the same as that of the whole entity. */
function MetadataLines(props: { attribute: Attribute; entityMeasured: number | null }): ComponentChildren {
  const { attribute, entityMeasured } = props;
  return [...attribute.metadata].map(([name, { value }]) => {
    if (name === "TimeInstant" && typeof value === "string" && Date.parse(value) === entityMeasured) return null;
    return (
      <small key={name}>
        {name}: {textOf(value)}
      </small>
    );
  });
}
