/** Terms of SQL that several read models use. */

/** The zero address, which is nobody's. */
export const ZERO_ADDRESS = "toFixedString('', 32)";

/** The upper and the lower 128 bits of an amount: sums of them do not overflow. */
export const upperHalf = (amount: string): string => `bitShiftRight(${amount}, 128)`;
export const lowerHalf = (amount: string): string =>
  `bitAnd(${amount}, bitShiftRight(bitNot(toUInt256(0)), 128))`;
