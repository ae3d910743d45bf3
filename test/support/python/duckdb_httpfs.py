"""DuckDB with the extension `httpfs`, installed in its own folder or as the package duckdb-extension-httpfs."""

import importlib.util
import json
from pathlib import Path

import duckdb

connection = duckdb.connect()
package = importlib.util.find_spec("duckdb_extension_httpfs")
packaged = [] if package is None else list(Path(package.submodule_search_locations[0]).rglob("httpfs.duckdb_extension"))
connection.execute(f"LOAD '{packaged[0]}'" if packaged else "LOAD httpfs")


def print_results(statements):
    """Prints the first value of the last statement."""
    print(json.dumps(list(connection.execute(statements).fetchone())))
