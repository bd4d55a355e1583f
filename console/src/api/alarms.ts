/** Open alarms of running jobs. */
import { array, type Json, json, nullable, number, object, string } from "./decode";
import { ask } from "./http";

export interface OpenAlarm {
  /** The id and the name of the job. */
  job: string;
  name: string;
  node: string;
  /** The value of `key_by`, a list if there are several. */
  key: Json;
  state: string;
  since: string;
  /** Since when it has been raised, if it is clearing or its key is absent. */
  raised_since: string | null;
  severity: Json;
  record: Json;
}

export interface OpenAlarms {
  /** All that are open; `alarms` may be fewer. */
  open: number;
  alarms: OpenAlarm[];
}

const decodeAlarms = object<OpenAlarms>({
  open: number,
  alarms: array(
    object<OpenAlarm>({
      job: string,
      name: string,
      node: string,
      key: json,
      state: string,
      since: string,
      raised_since: nullable(string),
      severity: (value, path) => json(value ?? null, path),
      record: (value, path) => json(value ?? null, path),
    }),
  ),
});

/** Alarms that are shown at once. */
const ALARMS_MAX = 200;

/** The open alarms of a job, or of all jobs of the tenant. */
export async function fetchAlarms(tenant: string, job: string | null): Promise<OpenAlarms> {
  const query = new URLSearchParams({ limit: String(ALARMS_MAX), ...(job === null ? {} : { job }) });
  return (await ask({ path: `/api/jobs/alarms?${query}`, tenant }, decodeAlarms)).value;
}
