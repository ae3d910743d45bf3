-- The newest price of each token. Times are unix milliseconds.
CREATE TABLE {{schema}}.latest_prices (
  token         text PRIMARY KEY,
  -- US dollars for one whole token, a decimal as its source wrote it; null: requested, and the source had none
  price         text,
  source        text,
  -- the source's own time of the price
  observed_at   bigint,
  -- of the newest request that was answered, with a price or without
  requested_at  bigint NOT NULL
);
