/** Outcomes of the comparison of a block's events with the commitment in its header, in words. */
export const EVENT_CHECKS: Readonly<Record<string, string>> = {
  verified: 'Verified',
  old_version: 'Before Starknet 0.13.2',
  no_commitment: 'No commitment given',
  mismatched: 'Mismatched',
  not_checked: 'Not compared',
};
