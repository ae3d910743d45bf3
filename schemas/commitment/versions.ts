/** The Starknet version that introduced this kind of commitments and block hash. */
export const FIRST_WITH_COMMITMENTS = [0, 13, 2] as const;

/** Whether a Starknet version comes before another; true for the empty version of the first blocks, false for what is no version. */
export function isOlderThan(version: string, other: readonly number[]): boolean {
  const parts = version.split('.').map(Number);
  if (parts.some(Number.isNaN)) return false;
  const differing = other.findIndex((part, index) => parts[index] !== part);
  return differing !== -1 && !((parts[differing] ?? 0) > (other[differing] ?? 0));
}
