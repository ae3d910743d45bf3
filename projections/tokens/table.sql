-- One row a token. What the chain says and what a curated list says are in columns of their own: neither waits for the
-- other, and neither overwrites the other. Times are unix milliseconds.

CREATE TABLE {{schema}}.tokens (
  token            text PRIMARY KEY,
  -- erc20, erc721, erc1155, unknown; null until the chain was asked
  standard         text,
  class_hash       text,
  -- as the contract gives them; null where it gives none
  name             text,
  symbol           text,
  decimals         smallint,
  -- the block in which the indexer first met it
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

-- For ILIKE '%part%' on name and symbol. Trigrams live wherever the extension was put; without it the search reads all.
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
