-- One row for each token. Values of the chain and values of a curated list are in separate columns: neither waits for the
-- other or overwrites it. Times are unix milliseconds.

CREATE TABLE {{schema}}.tokens (
  token            text PRIMARY KEY,
  -- erc20, erc721, erc1155, unknown; null until the chain was asked
  standard         text,
  class_hash       text,
  -- as the contract gives them; null where it gives none
  name             text,
  symbol           text,
  decimals         smallint,
  -- the block in which the indexer first saw it
  first_block      bigint,
  described_at     bigint,
  described_offset bigint,
  verified         boolean NOT NULL DEFAULT false,
  common           boolean NOT NULL DEFAULT false,
  public           boolean NOT NULL DEFAULT false,
  hidden           boolean NOT NULL DEFAULT false,
  logo             text,
  listed_at        bigint,
  listed_offset    bigint
);
CREATE INDEX tokens_by_standard ON {{schema}}.tokens (standard, token);
CREATE INDEX tokens_curated ON {{schema}}.tokens (token) WHERE verified OR common OR public OR hidden;

-- For ILIKE '%part%' on name and symbol. pg_trgm may be in any schema; without it, a search reads all rows.
DO $$
DECLARE
  home text := (SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'pg_trgm');
BEGIN
  IF home IS NOT NULL THEN
    EXECUTE format(
      'CREATE INDEX tokens_by_text ON {{schema}}.tokens USING gin (name %1$s.gin_trgm_ops, symbol %1$s.gin_trgm_ops)',
      home
    );
  END IF;
END
$$;
