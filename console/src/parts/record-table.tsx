/** Records as rows, the newest first. */
import type { ComponentChildren } from "preact";
import type { TopicRecord } from "../api/records";
import { moment } from "../format";
import { follow } from "../route";
import { keyLabel, RecordLine } from "./record-value";

export function RecordTable<T extends TopicRecord>(props: {
  /** The oldest first. */
  records: readonly T[];
  /** The address of a record in full. */
  address: (record: T) => string;
  /** The record that is open, such as `0:17`. */
  open: string;
  /** Where all records have one key: a column in place of it and the partition, with its name and its text. */
  first?: readonly [string, (record: T) => string];
  label: string;
}): ComponentChildren {
  const { records, address, open, first, label } = props;
  return (
    <div class="scroll">
      <table class="records" aria-label={label}>
        <thead>
          <tr>
            {first !== undefined && <th scope="col">{first[0]}</th>}
            <th scope="col">Time</th>
            {first === undefined && (
              <th scope="col" class="number record-partition">
                Partition
              </th>
            )}
            <th scope="col" class="number">
              Offset
            </th>
            {first === undefined && <th scope="col">Key</th>}
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          {records.toReversed().map((record) => {
            const id = `${record.partition}:${record.offset}`;
            return (
              <tr key={`${first?.[1](record) ?? ""} ${id}`} aria-current={id === open ? "true" : undefined}>
                {first !== undefined && <td>{first[1](record)}</td>}
                <td class="quiet" title={record.timestamp}>
                  <RecordTime at_ms={Date.parse(record.timestamp)} />
                </td>
                {first === undefined && <td class="number record-partition">{record.partition}</td>}
                <th scope="row" class="number">
                  <a
                    href={address(record)}
                    onClick={follow}
                    aria-label={`Record ${record.offset} of partition ${record.partition}`}
                  >
                    {record.offset}
                  </a>
                </th>
                {first === undefined && (
                  <td class="record-key" title={keyLabel(record.key)}>
                    <RecordLine value={record.key} />
                  </td>
                )}
                <td class="record-value">
                  <RecordLine value={record.value} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** Day and time; the day goes first where there is little room. */
function RecordTime({ at_ms }: { at_ms: number }): ComponentChildren {
  const [day = "", time = ""] = moment(at_ms).split(" ");
  return (
    <>
      <span class="record-day">{day} </span>
      {time}
    </>
  );
}
