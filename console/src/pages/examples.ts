/** Questions to begin with. The first stands in the editor of a new visitor. */
export interface Example {
  title: string;
  text: string;
}

export const EXAMPLES: readonly [Example, ...Example[]] = [
  {
    title: "Everything that arrives",
    text: "SELECT *\nFROM STREAM(60000, TIME)\nLIMIT 500",
  },
  {
    title: "Some columns",
    text: "SELECT origin, time, temp, humid, wind_speed\nFROM STREAM(120000, TIME)\nLIMIT 500",
  },
  {
    title: "Warm hours",
    text: "SELECT origin, time, temp\nFROM STREAM(600000, TIME)\nWHERE temp > 80",
  },
  {
    title: "Storms",
    text: "SELECT origin, time, wind_gust, pressure, precip\nFROM STREAM(600000, TIME)\nWHERE wind_gust > 40 OR pressure < 1000",
  },
  {
    title: "Mean of each station, every two seconds",
    text:
      "SELECT origin, COUNT(*) AS n, AVG(temp) AS mean, MAX(wind_speed) AS wind\nFROM STREAM(600000, TIME)\n" +
      "GROUP BY origin\nWINDOWING TUMBLING(2000, TIME)",
  },
  {
    title: "Who sends most",
    text: "SELECT TOP(10, $key)\nFROM STREAM(10000, TIME)",
  },
  {
    title: "How temperatures are spread",
    text: "SELECT FREQ(temp, LINEAR, 10)\nFROM STREAM(10000, TIME)",
  },
];
