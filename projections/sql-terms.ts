/** Terms of SQL that several read models use. */

/** The zero address, which is nobody's. */
export const ZERO_ADDRESS = "toFixedString('', 32)";

/** A felt as `0x` and 64 hexadecimal digits in lower case. */
export const feltSql = (felt: string): string => `concat('0x', lower(hex(${felt})))`;

/** The upper and the lower 128 bits of an amount: sums of them do not overflow. */
export const upperHalf = (amount: string): string => `bitShiftRight(${amount}, 128)`;
export const lowerHalf = (amount: string): string =>
  `bitAnd(${amount}, bitShiftRight(bitNot(toUInt256(0)), 128))`;
