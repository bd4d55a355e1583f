/** NGSI-v2 registrations: which context provider has which entities, and how asking it goes. */
import { array, type Decoder, nullable, number, object, string, withDefault } from "./decode";
import { ask } from "./http";
import type { EntityRule } from "./subscriptions";

export interface Registration {
  id: string;
  description: string;
  expires: string | null;
  entities: EntityRule[];
  /** Those that the provider has; all if empty. */
  attrs: string[];
  url: string;
  /** Requests that are forwarded: `all`, `query`, `update` or `none`. */
  mode: string;
  forwards: Forwards;
}

/** Since the server started. */
export interface Forwards {
  timesSent: number;
  lastForwarding: string | null;
  lastSuccess: string | null;
  lastSuccessCode: number | null;
  lastFailure: string | null;
  lastFailureReason: string | null;
}

export interface RegistrationPage {
  registrations: Registration[];
  total: number;
}

const head = object({ id: string, description: withDefault(string, ""), expires: nullable(string) });

const provided = object({
  entities: withDefault(
    array(
      object<EntityRule>({
        id: nullable(string),
        idPattern: nullable(string),
        type: nullable(string),
        typePattern: nullable(string),
      }),
    ),
    [],
  ),
  attrs: withDefault(array(string), []),
});

const provider = object({
  http: object({ url: string }),
  supportedForwardingMode: withDefault(string, "all"),
});

const forwards = object<Forwards>({
  timesSent: number,
  lastForwarding: nullable(string),
  lastSuccess: nullable(string),
  lastSuccessCode: nullable(number),
  lastFailure: nullable(string),
  lastFailureReason: nullable(string),
});

const parts = object({ dataProvided: provided, provider, forwardingInformation: forwards });

export const decodeRegistration: Decoder<Registration> = (value, path) => {
  const { dataProvided, provider: at, forwardingInformation } = parts(value, path);
  return {
    ...head(value, path),
    ...dataProvided,
    url: at.http.url,
    mode: at.supportedForwardingMode,
    forwards: forwardingInformation,
  };
};

export async function fetchRegistrations(tenant: string, limit: number, offset: number): Promise<RegistrationPage> {
  const options = "count,forwardingInformation";
  const query = new URLSearchParams({ limit: String(limit), offset: String(offset), options });
  const { value: registrations, headers } = await ask(
    { path: `/v2/registrations?${query}`, tenant },
    array(decodeRegistration),
  );
  const total = Number(headers.get("Fiware-Total-Count") ?? Number.NaN);
  return { registrations, total: Number.isFinite(total) ? total : offset + registrations.length };
}
