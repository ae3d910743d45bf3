/**
 * Seeds that found bugs; they always run. A change of the simulation changes their scenarios: then reintroduce each bug for a
 * moment, and replace a seed that does not find it any more by one that does.
 */
export const regressionSeeds: readonly { readonly seed: number; readonly found: string }[] = [
  { seed: 2, found: 'an amount of 2^255 or more halted the partition of the ledger' },
  { seed: 14, found: 'a rebuild failed at a skipped message that parses but cannot be projected' },
  {
    seed: 15,
    found: 'blocks that PostgreSQL had lost in a fail-over stayed in the log beside those that replaced them',
  },
  { seed: 26, found: 'the alarm of a finished chunk stayed after PostgreSQL failed to clear it' },
  {
    seed: 37,
    found: 'a node on another fork replaced a final block whose publish was in doubt, under the same seq',
  },
  {
    seed: 41,
    found:
      'a repair that PostgreSQL lost in a fail-over left a quarantine entry of a block that it had not published',
  },
  { seed: 45, found: 'a repair based on a lagging index left rows of an older answer' },
  { seed: 59, found: 'an interrupted repair left a quarantine entry open forever' },
  {
    seed: 221,
    found: 'an operator’s decision about a message was appended before its quarantine entry, and ignored',
  },
  {
    seed: 223,
    found: 'a reconciliation that was interrupted left a quarantine entry of a block that it had reverted',
  },
];
