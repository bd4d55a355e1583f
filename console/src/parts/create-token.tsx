/** The form that makes an API token, and the dialog that shows its secret, this once. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { createToken, type NewToken } from "../api/access";
import { credentials } from "../api/credential";
import { EVERY_TENANT, type Login, ownTenant, type Role, ROLES } from "../api/login";
import { Command } from "./command";
import { Field, FormDialog, textOf } from "./form-dialog";
import { TENANT_DEFAULT } from "./tenant";

const ROLE_TEXTS: Record<Role, string> = {
  reader: "reads entities, records, queries and figures",
  writer: "changes entities, keys and jobs, appends records",
  admin: "changes devices, topics, buckets and tokens",
};

/** How long a token is good; the empty text is for ever. */
const LIFETIMES = [
  ["", "never"],
  ["1d", "in a day"],
  ["30d", "in 30 days"],
  ["90d", "in 90 days"],
  ["365d", "in a year"],
] as const;

interface Made {
  name: string;
  secret: string;
}

export function CreateToken(props: { login: Login; tenant: string; onMade: () => void }): ComponentChildren {
  const { login, tenant, onMade } = props;
  const [made, setMade] = useState<Made | null>(null);
  return (
    <>
      <FormDialog
        role="admin"
        label="Create a token"
        tone="primary"
        submit="Create"
        refusal="The token was not made"
        act={async (form) => {
          const token = tokenOf(form);
          const secret = login.required ? await createToken(token) : await createFirst(token);
          setMade({ name: token.name, secret });
          onMade();
        }}
      >
        <TokenFields login={login} tenant={tenant} />
      </FormDialog>
      {made !== null && (
        <SecretDialog
          made={made}
          onDone={() => {
            setMade(null);
          }}
        />
      )}
    </>
  );
}

/** From the first token on the server asks everybody for one: the console goes on with the one that it has made. */
async function createFirst(token: NewToken): Promise<string> {
  return credentials.during(async () => {
    const secret = await createToken(token, null);
    credentials.keep({ kind: "token", secret });
    return secret;
  });
}

/** What the fields of the form ask for. */
export function tokenOf(form: FormData): NewToken {
  const roles = ROLES.filter((role) => form.getAll("roles").includes(role));
  if (roles.length === 0) throw new Error("a token needs at least one role");
  const token: NewToken = { name: textOf(form, "name"), roles };
  const tenant = form.get("every-tenant") === null ? textOf(form, "tenant") : EVERY_TENANT;
  if (tenant !== "") token.tenant = tenant;
  for (const member of ["topics", "types", "keys"] as const) {
    const prefixes = textOf(form, member)
      .split(/[\s,]+/)
      .filter((prefix) => prefix !== "");
    if (prefixes.length > 0) token[member] = prefixes;
  }
  const lifetime = textOf(form, "lifetime");
  if (lifetime !== "") token.lifetime = lifetime;
  return token;
}

function TokenFields({ login, tenant }: { login: Login; tenant: string }): ComponentChildren {
  const own = ownTenant(login.caller);
  const isFirst = !login.required;
  const [isOfAll, setIsOfAll] = useState(isFirst);
  return (
    <>
      {isFirst && (
        <p class="quiet">
          From the first token on, everybody needs one. Make it one of an admin; this console goes on with it.
        </p>
      )}
      <Field label="Name" hint="the user name of Kafka and Redis clients">
        <input name="name" required maxLength={100} spellcheck={false} autocomplete="off" autocapitalize="off" />
      </Field>
      {own === null ? (
        <>
          <Field label="Tenant">
            <input
              name="tenant"
              disabled={isOfAll}
              defaultValue={tenant}
              placeholder={TENANT_DEFAULT}
              spellcheck={false}
              autocomplete="off"
            />
          </Field>
          <label class="choice indented">
            <input
              type="checkbox"
              name="every-tenant"
              checked={isOfAll}
              onChange={(event) => {
                setIsOfAll(event.currentTarget.checked);
              }}
            />
            <span>Good for all tenants</span>
          </label>
        </>
      ) : (
        <p class="quiet">It is good for tenant {own}, as your own login is.</p>
      )}
      <fieldset class="choices">
        <legend>Roles</legend>
        {ROLES.map((role) => (
          <label key={role} class="choice">
            <input type="checkbox" name="roles" value={role} defaultChecked={isFirst || role === "reader"} />
            <span>
              {role} <small>{ROLE_TEXTS[role]}</small>
            </span>
          </label>
        ))}
      </fieldset>
      <Field label="Only topics that begin with">
        <input name="topics" placeholder="any, or telemetry., orders" spellcheck={false} autocomplete="off" />
      </Field>
      <Field label="Only entities of types that begin with">
        <input name="types" placeholder="any, or Room" spellcheck={false} autocomplete="off" />
      </Field>
      <Field label="Only keys that begin with" hint="BUCKET/PREFIX">
        <input name="keys" placeholder="any, or shop/, photos/2026/" spellcheck={false} autocomplete="off" />
      </Field>
      <Field label="Ends">
        <select name="lifetime">
          {LIFETIMES.map(([lifetime, text]) => (
            <option key={lifetime} value={lifetime}>
              {text}
            </option>
          ))}
        </select>
      </Field>
    </>
  );
}

function SecretDialog({ made, onDone }: { made: Made; onDone: () => void }): ComponentChildren {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      class="confirm form-dialog secret"
      aria-labelledby={id}
      // Nobody loses the secret by a stray Escape.
      onCancel={(event) => {
        event.preventDefault();
      }}
      onClose={onDone}
    >
      <h2 id={id}>Token {made.name}</h2>
      <p>This is its secret. It is shown this once: the server does not keep it.</p>
      <Command label="Secret" text={made.secret} />
      <p class="quiet">
        Applications send it as <code>Authorization: Bearer</code>, the terminal as <code>MILLSTREAM_TOKEN</code>.
      </p>
      <div class="confirm-buttons">
        <button type="button" class="primary" onClick={() => dialog.current?.close()}>
          Done
        </button>
      </div>
    </dialog>
  );
}
