/** Values that calls share. */

export const ETH = '0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7';
/** ISO 8601, some hours from now. */
export const hour = (from: number): string => new Date(Date.now() + from * 3_600_000).toISOString();

// oxlint-disable-next-line typescript/no-explicit-any -- answers of any shape
export type Json = any;
