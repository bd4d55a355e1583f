/** The words of the query language, for colours and for completion. */

/** Words that are no names unless they stand in double quotes. */
export const RESERVED: readonly string[] = (
  "SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER WINDOWING LIMIT AS AND OR XOR NOT IN IS BETWEEN RLIKE LIKE NULL " +
  "TRUE FALSE NOW"
).split(" ");

/** Words that mean something at their place only, and may be names elsewhere: keywords in capitals only. */
export const PLACED: readonly string[] = (
  "STREAM TUMBLING EVERY TIME RECORD MAX ALL FIRST ANY ASC DESC LINEAR REGION MANUAL BOOLEAN INTEGER LONG FLOAT DOUBLE " +
  "STRING MAP LIST"
).split(" ");

/** Name → what it takes and gives, as the completion shows it. */
export const FUNCTIONS: ReadonlyMap<string, string> = new Map([
  ["COUNT", "(*) or (value): how many"],
  ["SUM", "(number)"],
  ["AVG", "(number)"],
  ["MIN", "(value)"],
  ["MAX", "(value)"],
  ["TOP", "(k, value, …): the most frequent"],
  ["QUANTILE", "(number, LINEAR, n): values at ranks"],
  ["FREQ", "(number, LINEAR, n): how many in each range"],
  ["CUMFREQ", "(number, LINEAR, n): how many up to each value"],
  ["SIZEOF", "(value): elements, members or characters"],
  ["SIZEIS", "(value, n)"],
  ["CONTAINSKEY", "(map, 'key')"],
  ["CONTAINSVALUE", "(list, value)"],
  ["FILTER", "(list, booleans)"],
  ["IF", "(condition, a, b)"],
  ["CAST", "(value AS type)"],
  ["ABS", "(number)"],
  ["ROUND", "(number, digits after the point)"],
  ["TRIM", "(text)"],
  ["LOWER", "(text)"],
  ["UPPER", "(text)"],
  ["SUBSTRING", "(text, from, length)"],
  ["UNIXTIMESTAMP", "(text): seconds since 1970"],
  ["TYPEOF", "(value)"],
  ["HASH", "(value)"],
]);

/** Other names of functions: coloured, not proposed. */
export const ALIASES: readonly string[] = ["SUBSTR"];

/** What stands before a record's payload. */
export const PSEUDO: ReadonlyMap<string, string> = new Map([
  ["$key", "the record's key"],
  ["$timestamp", "milliseconds since 1970"],
  ["$offset", "the record's place in its partition"],
  ["$partition", "the number of its partition"],
  ["$header['name']", "one of the record's headers"],
]);
