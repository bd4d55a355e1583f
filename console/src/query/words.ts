/** The words of the query language, for colours and for completion. Its functions are in `functions.ts`. */

/** Words that are no names unless they stand in double quotes. */
export const RESERVED: readonly string[] = (
  "SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER WINDOWING LIMIT AS AND OR XOR NOT IN IS BETWEEN RLIKE LIKE CASE NULL " +
  "TRUE FALSE NOW"
).split(" ");

/** Words that mean something at their place only, and may be names elsewhere: keywords in capitals only. */
export const PLACED: readonly string[] = (
  "STREAM TUMBLING EVERY SESSION TIME RECORD DAY WEEK MONTH QUARTER YEAR ON DELAY MAX ALL FIRST LAST ANY ASC DESC " +
  "LINEAR REGION MANUAL BOOLEAN INTEGER LONG FLOAT DOUBLE STRING MAP LIST WHEN THEN ELSE END ESCAPE"
).split(" ");

/** What stands before a record's payload. */
export const PSEUDO: ReadonlyMap<string, string> = new Map([
  ["$key", "the record's key"],
  ["$timestamp", "milliseconds since 1970"],
  ["$offset", "the record's place in its partition"],
  ["$partition", "the number of its partition"],
  ["$header['name']", "one of the record's headers"],
]);
