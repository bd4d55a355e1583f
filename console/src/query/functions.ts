/** The functions of the query language, from the table of crates/columns: UPDATE_DOCS=1 cargo test -p millstream-columns. */

/** Name → what it takes and gives, as the completion shows it. */
export const FUNCTIONS: ReadonlyMap<string, string> = new Map([
  ["IF", "(condition, a, b): a if the condition is TRUE, else b"],
  ["COALESCE", "(a, b, …): The first value that is not NULL"],
  ["NULLIF", "(a, b): NULL if a equals b, else a"],
  ["ABS", "(number): The number without its sign"],
  [
    "ROUND",
    "(number[, digits]): The nearest number with that many digits after the point (default none; -2 rounds to hundreds); a half rounds away from zero",
  ],
  ["FLOOR", "(number): The greatest whole number that is not above it"],
  ["CEIL", "(number): The least whole number that is not below it"],
  [
    "CONCAT",
    "(a, b, …), a || b || …: The values as one text; numbers and booleans are written as CAST writes them, and NULL gives NULL",
  ],
  [
    "SUBSTRING",
    "(text, from[, length]): The characters from a place on, which counts from 1, or from the end if negative",
  ],
  [
    "SPLIT",
    "(text, separator): The list of the parts between the separators; with an empty separator the whole text is the only part",
  ],
  ["REPLACE", "(text, from, to): The text with each occurrence of one text replaced by another"],
  ["TRIM", "(text): The text without white space at both ends"],
  ["LOWER", "(text): The text in lower case"],
  ["UPPER", "(text): The text in upper case"],
  [
    "EXTRACT",
    "(part FROM time): One part of a time, an integer: YEAR, QUARTER, MONTH, WEEK (of ISO 8601), DAY, DAY_OF_WEEK (1 is Monday), DAY_OF_YEAR, HOUR, MINUTE, SECOND, MILLISECOND, EPOCH (seconds since 1970)",
  ],
  [
    "DATE_TRUNC",
    "('part', time): The start of the year, quarter, month, week (Monday), day, hour, minute, second or millisecond, in milliseconds",
  ],
  ["FORMAT_TIME", "(time[, pattern]): The time as a text; without a pattern as in RFC 3339"],
  [
    "PARSE_TIME",
    "(text[, pattern]): The time in milliseconds since 1970-01-01T00:00:00Z; without a pattern the text is as in RFC 3339",
  ],
  [
    "UNIXTIMESTAMP",
    "([text[, pattern]]): Seconds since 1970-01-01T00:00:00Z; the default pattern is yyyy-MM-dd HH:mm:ss; without arguments it is now",
  ],
  ["SIZEOF", "(value): The number of elements of a list, members of a map or characters of a text"],
  ["SIZEIS", "(value, n): TRUE if SIZEOF is n"],
  ["CONTAINSKEY", "(map, 'key'): TRUE if a map, or a map in a list, has the member"],
  [
    "CONTAINSVALUE",
    "(list, value): TRUE if an element of a list, a member of a map, or a member of a map in a list equals the value",
  ],
  ["FILTER", "(list, booleans): The elements whose boolean at the same place is TRUE"],
  [
    "CAST",
    "(value AS type): The value as BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE or STRING; it fails if it cannot be converted",
  ],
  ["TYPEOF", "(value): LONG, DOUBLE, STRING, BOOLEAN, LIST or MAP"],
  ["HASH", "(value): A hash of 32 bits of the value, as in Java"],
  [
    "COUNT",
    "(*), (value), (DISTINCT a, …): The number of records, of values that are not NULL, or of different values",
  ],
  ["SUM", "(number): The sum of the numbers; NULL without numbers"],
  ["AVG", "(number): The mean of the numbers, a double; NULL without numbers"],
  ["MIN", "(value): The least number, or without numbers the least text"],
  ["MAX", "(value): The greatest number, or without numbers the greatest text"],
  ["STDDEV", "(number): The standard deviation of the numbers as a sample, a double; NULL of fewer than two"],
  [
    "FIRST",
    "(value): The first value by event time that is a number, text or boolean; of equal times by partition and offset",
  ],
  [
    "LAST",
    "(value): The last value by event time that is a number, text or boolean; of equal times by partition and offset",
  ],
  [
    "QUANTILE",
    "(number, 0.95), (number, LINEAR, n), (number, REGION, start, end, step), (number, MANUAL, p, …): The least number that the share of all numbers does not exceed; with points a row for each",
  ],
  [
    "FREQ",
    "(number, LINEAR, n), (number, REGION, start, end, step), (number, MANUAL, p, …): A row for each range between the points: how many numbers are in it",
  ],
  [
    "CUMFREQ",
    "(number, LINEAR, n), (number, REGION, start, end, step), (number, MANUAL, p, …): A row for each point: how many numbers are below it",
  ],
  ["TOP", "(k[, least count], value, …): A row for each of the k most frequent values, and its count"],
  [
    "WINDOW_START",
    "(): The beginning of the window, in milliseconds; of a session the time of its first record. NULL in windows by RECORD",
  ],
  [
    "WINDOW_END",
    "(): The end of the window, which is no part of it; of a session the time of its last record, which is",
  ],
]);

/** Other names of functions: coloured, not proposed. */
export const ALIASES: readonly string[] = ["CEILING", "SUBSTR"];

/** Functions of many records. */
export const AGGREGATES: readonly string[] = [
  "COUNT",
  "SUM",
  "AVG",
  "MIN",
  "MAX",
  "STDDEV",
  "FIRST",
  "LAST",
  "QUANTILE",
  "FREQ",
  "CUMFREQ",
  "TOP",
  "WINDOW_START",
  "WINDOW_END",
];
