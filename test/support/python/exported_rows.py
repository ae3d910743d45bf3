"""Reads exports with libraries of Python, and prints rows as JSON in the form of export-client.ts."""

import json
import sys
from datetime import datetime

APPROXIMATE = ("value_float", "price_usd")
NULLABLE = (*APPROXIMATE, "token_decimals")


def print_rows(frame):
    print(json.dumps(rows_of(frame)))


def rows_of(frame):
    if hasattr(frame, "to_pylist"):
        rows = frame.to_pylist()
    elif hasattr(frame, "to_dicts"):
        rows = frame.to_dicts()
    else:
        rows = frame.to_dict("records")
    return [{name: plain(name, value) for name, value in row.items()} for row in rows]


def plain(name, value):
    # NaN and NaT differ from themselves.
    if value is None or value != value or (value == "" and name in NULLABLE):
        return None if name in NULLABLE else ""
    if name == "timestamp":
        time = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
        return str(round(time.timestamp() * 1000))
    if name in APPROXIMATE:
        return float(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    # pandas has floating-point numbers in a column of integers with nulls.
    return str(int(value)) if isinstance(value, float) else str(value)


def readers(library):
    if library == "pandas":
        import pandas

        return {
            "csv": lambda path: pandas.read_csv(path, dtype=str, keep_default_na=False),
            "ndjson": lambda path: pandas.read_json(path, lines=True, dtype=False, convert_dates=False),
            "parquet": pandas.read_parquet,
        }
    if library == "pyarrow":
        import pyarrow.ipc
        import pyarrow.parquet

        return {
            "parquet": pyarrow.parquet.read_table,
            "arrow": lambda path: pyarrow.ipc.open_stream(path).read_all(),
        }
    import polars

    return {
        "csv": lambda path: polars.read_csv(path, infer_schema=False),
        "ndjson": polars.read_ndjson,
        "parquet": polars.read_parquet,
        "arrow": polars.read_ipc_stream,
    }


if __name__ == "__main__":
    library, folder = sys.argv[1:]
    print(json.dumps({name: rows_of(read(f"{folder}/{name}")) for name, read in readers(library).items()}))
