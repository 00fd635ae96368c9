"""A program of a user, with the public API and nothing else of Kubothek; `make lint` checks its types."""

from __future__ import annotations

import pyarrow as pa

import kubothek
from kubothek.errors import DatasetNotFound

ROWS = pa.table({"month": [1, 1, 2], "carrier": ["AA", "UA", "AA"], "delay": [1.5, -2.0, 30.0]})


def main(url: str) -> list[str]:
    """Write and read a dataset and a cube of the lake at ``url``; return what was found."""
    lake: kubothek.Lake = kubothek.open(url)
    flights: kubothek.Dataset = lake.create_dataset("flights", partition_on="month")
    flights.append(ROWS)
    flights.set_skipping([kubothek.IndexDefinition("MinMax", ("delay",))])
    found = [f"{flights.scan(where='delay > 0').read_all().num_rows} delayed flights"]
    table = lake.sql("SELECT carrier, max(delay) AS delay FROM flights GROUP BY carrier ORDER BY carrier").read_all()
    found += [f"{row['carrier']}: {row['delay']}" for row in table.to_pylist()]
    found += [f"version {record.version}" for record in flights.history()]
    try:
        lake.dataset("fligths")
    except DatasetNotFound as error:
        found.append(str(error))
    flights.delete(where="month = 2")
    cube: kubothek.Cube = lake.create_cube("visits", dimension_columns="id", partition_columns="day")
    cube.build(pa.table({"id": [1, 2], "day": ["a", "b"]}), id="first visits")
    spec: kubothek.CubeSpec = cube.spec
    return [*found, f"{flights.scan().read_all().num_rows} rows are left", ", ".join(spec.dimension_columns)]
