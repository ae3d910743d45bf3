-- The result of the last attempt to fetch each NFT's metadata. Times are unix milliseconds.
CREATE TABLE {{schema}}.nft_metadata (
  token           text NOT NULL,
  token_id        numeric(78) NOT NULL,
  is_fetched      boolean NOT NULL,
  -- failures in a row
  attempt_count   integer NOT NULL,
  last_attempt_at bigint NOT NULL,
  -- time of the next attempt, while it is not fetched; null: there is none
  retry_at        bigint,
  -- why the last attempt failed; if the contract reverted, its own message
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
