/** How it goes with a subscription, in one word and a line. */
import type { Delivery, EntityRule, Subscription } from "../api/subscriptions";
import { counted } from "../format";

export interface DeliveryState {
  tone: "good" | "quiet" | "warning" | "error";
  word: string;
  detail: string;
}

export function deliveryState({ status, delivery }: Subscription): DeliveryState {
  const { failsCounter, maxFailsLimit, queue, lastSuccess, timesSent } = delivery;
  const failures = `${counted(failsCounter, "failure")} in a row`;
  if (status === "expired") return { tone: "quiet", word: "Expired", detail: "" };
  if (status === "inactive") {
    const gaveUp = maxFailsLimit !== null && failsCounter > maxFailsLimit;
    return gaveUp
      ? { tone: "error", word: "Gave up", detail: failures }
      : { tone: "quiet", word: "Paused", detail: "" };
  }
  if (failsCounter > 0 || status === "failed") {
    return { tone: "error", word: "Failing", detail: failsCounter > 0 ? failures : "" };
  }
  if (queue !== null && queue.length > 0 && isBehind(delivery)) {
    return { tone: "warning", word: "Waiting", detail: `${counted(queue.length, "notification")} to send` };
  }
  if (status === "oneshot") return { tone: "good", word: "Armed", detail: "for one notification" };
  if (lastSuccess !== null) return { tone: "good", word: "Delivering", detail: "" };
  return timesSent > 0
    ? { tone: "quiet", word: "Sent", detail: "not yet known whether it arrived" }
    : { tone: "quiet", word: "Quiet", detail: "nothing has been sent yet" };
}

/** What is on its way does not wait. */
const ON_ITS_WAY_MS = 5_000;

function isBehind({ lastNotification, lastSuccess }: Delivery): boolean {
  if (lastNotification === null || lastSuccess === null) return true;
  return Date.parse(lastNotification) - Date.parse(lastSuccess) > ON_ITS_WAY_MS;
}

/** `Room`, `Room with id /^r/`, `r1 (Room)`. */
export function ruleText({ id, idPattern, type, typePattern }: EntityRule): string {
  const kind = type ?? (typePattern === null ? "any type" : `type /${typePattern}/`);
  if (id !== null) return `${id} (${kind})`;
  return idPattern === null || idPattern === ".*" ? kind : `${kind} with id /${idPattern}/`;
}

/** Which entities, and which changes of them. */
export function subjectText({ entities, conditionAttrs, expression, jexl }: Subscription): string {
  const who = entities.map(ruleText).join("; ");
  const what = conditionAttrs.length > 0 ? `when ${conditionAttrs.join(", ")} changes` : "on every change";
  const only = Object.entries(expression).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return name === "q" || name === "mq" ? text : `${name} ${text}`;
  });
  if (jexl !== "") only.push(`jexl ${jexl}`);
  return `${who} ${what}${only.length > 0 ? `, if ${only.join(", ")}` : ""}`;
}

/**
 * Notifications of which nothing is known: they are on their way, or were in memory when the server ended. Null if the
 * server does not count how they end.
 */
export function unaccounted({ timesSent, ended, queue }: Delivery): number | null {
  if (ended === null) return null;
  const known = ended.delivered + ended.givenUp + (queue?.length ?? 0) + (queue?.dropped ?? 0);
  return Math.max(0, timesSent - known);
}
