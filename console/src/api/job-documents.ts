/** Documents of jobs: read, checked, tested and submitted. */
import { send, Unreachable } from "./http";
import { pathOf } from "./jobs";
import { rawMembers } from "./raw-json";

/** The document of a job as JSON, with all digits of its numbers. */
export async function fetchDocumentText(tenant: string, id: string): Promise<string> {
  const answer = await send({ path: pathOf(id), tenant });
  const text = await answer.text().catch((cause: unknown) => {
    throw new Unreachable(cause);
  });
  return rawMembers(text).get("document") ?? "{}";
}
