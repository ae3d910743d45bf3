/** What an alarm means and what an operator does about it; docs/operations.md has the same table. */
export interface Remedy {
  readonly meaning: string;
  readonly action: string;
}

/** By the name of an alarm up to its subject: the longest prefix counts. */
const REMEDIES: Readonly<Record<string, Remedy>> = {
  'ingest.failing:': {
    meaning:
      'the writer of a chunk failed with five retryable errors in a row, or with one that is not retryable',
    action:
      'read the error in the detail; for `RECORDS_INCOMPLETE` see "PostgreSQL fail-over" in operations.md',
  },
  'ingest.failing:start': {
    meaning: 'the ingester failed to start five times in a row, or once with an error that is not retryable',
    action: 'read the error in the detail; for `CHAIN_MISMATCH` or `NODE_…` check `STARKNET_RPC_URL`',
  },
  'ingest.stalled:': {
    meaning: 'a chunk has work, but no progress for `STALL_SECONDS`',
    action: 'check the node, Kafka and PostgreSQL; read the log of `ingest`',
  },
  'node.head-stalled': {
    meaning:
      'the node answers, but for `HEAD_STALL_SECONDS` has had no new block, or only blocks below the index',
    action:
      'check that the node syncs, or use another in `STARKNET_RPC_URL`; the network itself may have halted',
  },
  'node.l1-unavailable': {
    meaning:
      'for `STALL_SECONDS`, every request for the height accepted on L1 failed: no block becomes final',
    action: 'read the error in the detail; check the node and its Ethereum URL',
  },
  'contract.unclassified:': {
    meaning: 'the node does not report the standard of a contract',
    action: 'see "Is everything right?" in operations.md',
  },
  'projection.outdated:': {
    meaning: 'the read model is not built, or is served in an older version than `tds project` writes',
    action: 'run the `tds rebuild NAME …` command in the detail',
  },
  'verify.block:': {
    meaning: 'a sampled block is inconsistent',
    action: 'run the `tds verify … --repair` command in the detail',
  },
  'clickhouse.replica-missing:': {
    meaning: 'another replica of ClickHouse does not see this one in Keeper: it is down, or has lost Keeper',
    action:
      'check the server; see "A ClickHouse cluster" in operations.md for one that lost its disk or is removed',
  },
  'clickhouse.replica-behind:': {
    meaning:
      'a replica of ClickHouse is read-only, lacks tables, or lacks rows that are older than `STALL_SECONDS`',
    action:
      'read the log of the server; check its Keeper, its disk and the network between the replicas; for missing tables see "A ClickHouse cluster" in operations.md',
  },
  'clickhouse.replicas-hidden': {
    meaning:
      'the user of `CLICKHOUSE_URL` may not read the state of the replicas: no alarm tells of one that fails',
    action: 'run `GRANT SELECT ON system.replicas` for that user',
  },
  'webhooks.waiting:': {
    meaning: 'webhooks of a partition wait for a halted projection',
    action: 'resolve the halt: see "Halted partitions and quarantine" in operations.md',
  },
  'webhooks.unsigned': {
    meaning:
      'secrets of active webhooks were sealed with a `SECRET_KEY` that `dispatch` lacks: their deliveries fail',
    action: 'add that key to `SECRET_KEYS_PREVIOUS`; where it is lost, rotate the secrets of these webhooks',
  },
  'prices.feed': { meaning: 'the price feed does not answer', action: 'check `PRICE_FEED_URL`' },
  'prices.refused:': {
    meaning: 'a price of a common token was refused; the detail has the reason',
    action: 'check the feed; see "Prices" in operations.md',
  },
  'tokens.list': {
    meaning: 'the token list does not answer, is invalid, or has lost too many of its tokens',
    action: 'check `TOKEN_LIST_URL`; see "Token list" in operations.md',
  },
  'nft.gateway': {
    meaning: 'the last 20 calls of the IPFS gateway failed',
    action: 'check `IPFS_GATEWAY_URL`',
  },
};

const UNKNOWN: Remedy = { meaning: 'an alarm of another release', action: 'read the detail' };

export function remedyOf(alarm: string): Remedy {
  const [prefix = ''] = Object.keys(REMEDIES)
    .filter((name) => alarm.startsWith(name))
    .toSorted((a, b) => b.length - a.length);
  return REMEDIES[prefix] ?? UNKNOWN;
}
