import type { Cell, ColumnSpec, ColumnType, Row } from '../../infra/clickhouse/row-binary.ts';

/** Decodes ClickHouse's RowBinary by its specification, independently of the encoder. */
export function decodeRows(columns: readonly ColumnSpec[], bytes: Buffer): Row[] {
  let at = 0;
  const number = (width: 1 | 2 | 4): number => {
    const value = bytes.readUIntLE(at, width);
    at += width;
    return value;
  };
  const wide = (): bigint => {
    let value = 0n;
    for (let word = 3; word >= 0; word -= 1) value = (value << 64n) | bytes.readBigUInt64LE(at + 8 * word);
    at += 32;
    return value;
  };
  const felt = (): string => {
    const hex = bytes.toString('hex', at, at + 32);
    at += 32;
    return `0x${hex}`;
  };
  const varUint = (): number => {
    for (let value = 0, shift = 1; ; shift *= 128) {
      const byte = number(1);
      value += (byte & 0x7f) * shift;
      if (byte < 0x80) return value;
    }
  };
  const text = (): string => {
    const size = varUint();
    at += size;
    return bytes.toString('utf8', at - size, at);
  };
  const list = <T>(item: () => T): T[] => Array.from({ length: varUint() }, item);
  const readers: Readonly<Record<ColumnType, () => Cell>> = {
    'FixedString(32)': felt,
    UInt8: () => number(1),
    UInt16: () => number(2),
    UInt32: () => number(4),
    DateTime: () => number(4),
    UInt64: () => {
      at += 8;
      return Number(bytes.readBigUInt64LE(at - 8));
    },
    UInt256: wide,
    Int256: () => BigInt.asIntN(256, wide()),
    String: text,
    'LowCardinality(String)': text,
    'Array(FixedString(32))': () => list(felt),
    'Array(UInt32)': () => list(() => number(4)),
  };
  const plan = columns.map(({ name, type }) => [name, readers[type]] as const);
  const rows: Row[] = [];
  while (at < bytes.length) {
    const row: Record<string, Cell> = {};
    for (const [name, read] of plan) row[name] = read();
    rows.push(row);
  }
  if (at !== bytes.length) throw new RangeError('the last row is truncated');
  return rows;
}
