/** Outcomes of the comparison of a block's events with the commitment in its header, in words. */
export const EVENT_CHECKS: Readonly<Record<string, string>> = {
  verified: 'Match their commitment',
  old_version: 'Commitment of another kind, before Starknet 0.13.2',
  no_commitment: 'The node gave no commitment',
  mismatched: 'Do not match their commitment',
  not_checked: 'Not compared',
};
