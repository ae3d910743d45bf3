-- Fetched blocks by the comparison with what they commit to: 'block_hash', 'events', 'transactions' or 'receipts'. From the
-- first 'verified' block of a Starknet version on, its blocks that do not match are refused; before, the chain may make up
-- its commitments, or the version may compute them in another way.
CREATE TABLE tds.commitment_checks (
  commitment text NOT NULL,
  starknet_version text NOT NULL,
  outcome text NOT NULL,
  blocks bigint NOT NULL,
  -- null: not counted when it was stored
  from_height bigint,
  to_height bigint,
  last_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (commitment, starknet_version, outcome)
);
INSERT INTO tds.commitment_checks (commitment, starknet_version, outcome, blocks)
  SELECT 'block_hash', version, 'verified', 0 FROM tds.chain, unnest(hashed_versions) AS version
  -- The version was not kept; 0.13.2 introduced what held.
  UNION ALL SELECT 'events', '0.13.2', 'verified', 0 FROM tds.chain WHERE commitments_hold;
-- The columns stay for processes of the previous release, which run until they are replaced.
