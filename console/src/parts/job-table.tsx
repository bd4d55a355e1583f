/** Jobs as rows: the state of each, since when, and how many records pass it. */
import type { ComponentChildren } from "preact";
import type { Job } from "../api/jobs";
import { short, whole } from "../format";
import { isAlive, jobWord } from "../live/job-state";
import { jobsParams, type JobsPlace } from "../pages/jobs-place";
import { follow, href } from "../route";
import { When } from "./subscription-table";
import { Name } from "./value";

export function JobTable({ jobs, place }: { jobs: readonly Job[]; place: JobsPlace }): ComponentChildren {
  const now = Date.now();
  return (
    <div class="scroll">
      <table class="jobs">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Since</th>
            <th scope="col" class="number" title="Records that its sources read, over ten seconds">
              In per second
            </th>
            <th scope="col" class="number" title="Records that its sinks wrote, over ten seconds">
              Out per second
            </th>
            <th scope="col" class="number" title="Records of its topics that are not processed yet">
              Lag
            </th>
            <th scope="col" class="number">
              Errors
            </th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <JobRow key={job.id} job={job} address={href("jobs", jobsParams({ ...place, job: job.id }))} now={now} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function JobRow({ job, address, now }: { job: Job; address: string; now: number }): ComponentChildren {
  const { figures, reason } = job;
  return (
    <tr>
      <th scope="row">
        <span class="id">
          <a href={address} onClick={follow}>
            <Name text={job.name} />
          </a>
          <span class="id-start">{job.id}</span>
        </span>
      </th>
      <td>
        <JobBadge job={job} />
      </td>
      <td>
        <When at={isAlive(job) ? job.submitted : job.ended} now={now} />
      </td>
      <Figure value={isAlive(job) ? figures?.rate_in : null} format={short} />
      <Figure value={isAlive(job) ? figures?.rate_out : null} format={short} />
      <Figure value={isAlive(job) ? figures?.lag : null} format={whole} />
      <Figure value={figures?.errors} format={whole} />
      <td class="cut" title={reason ?? undefined}>
        {reason}
      </td>
    </tr>
  );
}

function Figure(props: { value: number | null | undefined; format: (value: number) => string }): ComponentChildren {
  const { value, format } = props;
  return <td class="number">{value == null ? <span class="absent">–</span> : format(value)}</td>;
}

export function JobBadge({ job }: { job: Job }): ComponentChildren {
  const { tone, word } = jobWord(job);
  return <span class={`state ${tone}`}>{word}</span>;
}
