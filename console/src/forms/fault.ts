/** A fault in what somebody typed, or that the server found: which field it belongs to, and what to do. */
import { Refused } from "../api/http";

export interface Fault {
  /** Empty: no field in particular. */
  field: string;
  message: string;
}

/** Thrown where a form is read. */
export class FieldError extends Error {
  constructor(
    readonly field: string,
    message: string,
  ) {
    super(message);
    this.name = "FieldError";
  }
}

/** A rule that tells from the server's words which field they are about. */
export type FaultRule = readonly [pattern: RegExp, field: string];

/** The fault that `cause` stands for: a field's own, or the field of the first rule that fits the server's words. */
export function faultOf(cause: unknown, rules: readonly FaultRule[]): Fault {
  if (cause instanceof FieldError) return { field: cause.field, message: cause.message };
  const message = cause instanceof Error ? cause.message : String(cause);
  const rule = cause instanceof Refused ? rules.find(([pattern]) => pattern.test(message)) : undefined;
  return { field: rule?.[1] ?? "", message };
}
