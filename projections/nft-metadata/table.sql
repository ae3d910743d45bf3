-- What became of the last attempt to fetch each NFT's metadata. Times are unix milliseconds.
CREATE TABLE {{schema}}.nft_metadata (
  token           text NOT NULL,
  token_id        numeric(78) NOT NULL,
  is_fetched      boolean NOT NULL,
  -- failures in a row
  attempt_count   integer NOT NULL,
  last_attempt_at bigint NOT NULL,
  -- while it is not fetched: nobody tries before; null: nobody tries again
  retry_at        bigint,
  -- why the last attempt failed; the contract's own words where it reverted
  reason          text,
  has_reverted    boolean NOT NULL,
  -- as the contract gave it
  uri             text,
  name            text,
  description     text,
  image           text,
  external_url    text,
  animation_url   text,
  attributes      jsonb NOT NULL,
  PRIMARY KEY (token, token_id)
);
CREATE INDEX nft_metadata_fetched ON {{schema}}.nft_metadata (token, token_id) WHERE is_fetched;
