/** The state of a registration in one word and a line. */
import type { Registration } from "../api/registrations";
import type { DeliveryState } from "./delivery";
import { ruleText } from "./delivery";

export function forwardState({ mode, expires, forwards }: Registration, now: number): DeliveryState {
  const { lastSuccess, lastFailure, lastFailureReason } = forwards;
  if (expires !== null && Date.parse(expires) <= now) return { tone: "quiet", word: "Expired", detail: "" };
  if (mode === "none") return { tone: "quiet", word: "Off", detail: "nothing is forwarded" };
  const failed = lastFailure === null ? Number.NEGATIVE_INFINITY : Date.parse(lastFailure);
  const succeeded = lastSuccess === null ? Number.NEGATIVE_INFINITY : Date.parse(lastSuccess);
  if (failed > succeeded) return { tone: "error", word: "Failing", detail: lastFailureReason ?? "" };
  return lastSuccess === null
    ? { tone: "quiet", word: "Quiet", detail: "nothing has been asked since the server started" }
    : { tone: "good", word: "Answering", detail: "" };
}

/** `temperature, humidity of r1 (Room)`. */
export function providedText({ entities, attrs }: Registration): string {
  return `${attrs.length === 0 ? "all" : attrs.join(", ")} of ${entities.map(ruleText).join("; ")}`;
}
