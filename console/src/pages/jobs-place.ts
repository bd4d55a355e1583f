/** The choices on the page of jobs, as the address bar has them. */
import { STATES } from "../api/jobs";
import type { Move } from "../route";
import { LIMITS } from "./entities-place";

const LIMIT_DEFAULT = 50;
/** Records a second that a tap may show. */
export const TAP_RATES = [1, 10, 100] as const;
const TAP_RATE_DEFAULT = 10;
const NEW = "job";

export interface JobsPlace {
  tenant: string;
  /** Only jobs in this state; empty: all. */
  state: string;
  /** Only jobs whose name has this in it. */
  name: string;
  /** From 1. */
  page: number;
  limit: number;
  /** The id of the job that is open. */
  job: string | null;
  /**
   * A new job is being written: from an example, or from the document of the job with this id; with `resumes` it goes on from that
   * job's state.
   */
  draft: { copyOf: string | null; resumes: boolean } | null;
  /** The edge whose records are on the screen. */
  edge: { from: string; to: string } | null;
  rate: number;
  /** The node whose keys are on the screen, and the only key of them; empty: the first ones. */
  keys: { node: string; key: string } | null;
}

/** Goes to where `change` leads from the place at hand. */
export type JobsMover = (change: Partial<JobsPlace>, how: Move) => void;

export function jobsPlace(params: URLSearchParams): JobsPlace {
  const page = Number(params.get("page") ?? 1);
  const limit = Number(params.get("limit") ?? LIMIT_DEFAULT);
  const rate = Number(params.get("rate") ?? TAP_RATE_DEFAULT);
  const [resume, keysOf] = [params.get("resume") ?? "", params.get("keys") ?? ""];
  const [from = "", to = ""] = (params.get("edge") ?? "").split(",");
  return {
    tenant: params.get("tenant") ?? "",
    state: STATES.find((state) => state === params.get("state")) ?? "",
    name: params.get("name") ?? "",
    page: Number.isInteger(page) && page > 0 ? page : 1,
    limit: LIMITS.find((choice) => choice === limit) ?? LIMIT_DEFAULT,
    job: params.get("job"),
    draft:
      params.get("new") === NEW
        ? { copyOf: resume === "" ? params.get("copy") : resume, resumes: resume !== "" }
        : null,
    edge: from === "" || to === "" ? null : { from, to },
    rate: TAP_RATES.find((choice) => choice === rate) ?? TAP_RATE_DEFAULT,
    keys: keysOf === "" ? null : { node: keysOf, key: params.get("key") ?? "" },
  };
}

export function jobsParams(place: JobsPlace): Record<string, string> {
  const { draft, keys } = place;
  return {
    tenant: place.tenant,
    state: place.state,
    name: place.name,
    page: place.page === 1 ? "" : String(place.page),
    limit: place.limit === LIMIT_DEFAULT ? "" : String(place.limit),
    job: place.job ?? "",
    new: draft === null ? "" : NEW,
    copy: draft === null || draft.resumes ? "" : (draft.copyOf ?? ""),
    resume: draft?.resumes === true ? (draft.copyOf ?? "") : "",
    edge: place.edge === null ? "" : `${place.edge.from},${place.edge.to}`,
    rate: place.rate === TAP_RATE_DEFAULT ? "" : String(place.rate),
    keys: keys?.node ?? "",
    key: keys?.key ?? "",
  };
}
