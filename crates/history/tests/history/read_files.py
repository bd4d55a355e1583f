"""Reads the files of history as they lie, with DuckDB and with pandas."""

import sys

import duckdb
import pandas

root = sys.argv[1]

# A table with the directories as columns.
everything = f"read_parquet('{root}/**/*.parquet', hive_partitioning = true)"
rows = duckdb.sql(
    f"""select tenant, type, cast(day as varchar), entity_id, attribute, count(*), avg(number), max(observed_at)::varchar
        from {everything} group by all order by all"""
).fetchall()
for row in rows:
    print("duckdb", *row)
(odd,) = duckdb.sql(f"select value from {everything} where type = 'Odd Type/é'").fetchone()
print("duckdb odd", odd)

table = pandas.read_parquet(root)
for (kind, attribute), points in table.groupby(["type", "attribute"], observed=True):
    print("pandas", kind, attribute, len(points), points["number"].sum(), points["observed_at"].max().isoformat())
print("pandas columns", *table.columns)
