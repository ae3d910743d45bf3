-- What each contract with a token-shaped event turned out to be, by the chain's answer. The first answer stays, so that
-- every message about a contract says the same, until an operator has it looked up again.
CREATE TABLE tds.contract_standards (
  contract text PRIMARY KEY,
  standard text NOT NULL CHECK (standard IN ('erc20', 'erc721', 'erc1155', 'unknown')),
  -- null: the chain knows no such contract
  class_hash text,
  -- what told it: the class's ABI, SRC-5, the presence of decimals, or nothing
  basis text NOT NULL CHECK (basis IN ('abi', 'src5', 'decimals', 'nothing')),
  -- the block in which it was looked up
  block bigint NOT NULL,
  classified_at timestamptz NOT NULL DEFAULT now()
);
