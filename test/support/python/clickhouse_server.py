"""The ClickHouse server of the library in the package chdb, with the arguments of this program."""

import ctypes
import sys

library, *arguments = sys.argv[1:]
strings = [b"clickhouse-server", *map(str.encode, arguments)]
argv = (ctypes.c_char_p * (len(strings) + 1))(*strings, None)
# int mainEntryClickHouseServer(int, char **)
sys.exit(ctypes.CDLL(library)._Z25mainEntryClickHouseServeriPPc(len(strings), argv))
