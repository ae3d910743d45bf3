/** SQL of the zero address, which holds nothing. */
export const ZERO = "toFixedString('', 32)";

/** SQL of the upper and of the lower 128 bits of an amount: their sums do not overflow. */
export const upperHalf = (amount: string): string => `bitShiftRight(${amount}, 128)`;
export const lowerHalf = (amount: string): string =>
  `bitAnd(${amount}, bitShiftRight(bitNot(toUInt256(0)), 128))`;

/** SQL of the shard of an account: its last 10 bits, which are spread evenly because an address is a hash. */
export function shardSql(account: string): string {
  return `toUInt16(reinterpretAsUInt16(reverse(substring(${account}, 31, 2))) % 1024)`;
}
