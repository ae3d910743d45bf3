-- The token standard of each contract with a token-shaped event, as determined from the chain. The first answer stays, so
-- that every message about a contract agrees, until an operator reclassifies it.
CREATE TABLE tds.contract_standards (
  contract text PRIMARY KEY,
  standard text NOT NULL CHECK (standard IN ('erc20', 'erc721', 'erc1155', 'unknown')),
  -- null: the chain has no such contract
  class_hash text,
  -- what decided it: the class's ABI, SRC-5, the presence of decimals, or nothing
  basis text NOT NULL CHECK (basis IN ('abi', 'src5', 'decimals', 'nothing')),
  -- the block at which it was determined
  block bigint NOT NULL,
  classified_at timestamptz NOT NULL DEFAULT now()
);
