-- What users want to be told, and where. Times are unix milliseconds of the command (`issued_at`).

CREATE TABLE {{schema}}.webhooks (
  -- The offset of the command that made it, plus one.
  id              bigint PRIMARY KEY,
  user_id         bigint NOT NULL,
  name            text NOT NULL,
  url             text NOT NULL,
  events          text[] NOT NULL,
  status          text NOT NULL,
  created_at      bigint NOT NULL,
  updated_at      bigint NOT NULL,
  -- Both are null unless it is disabled.
  disabled_at     bigint,
  disabled_reason text,
  -- The offset, plus one, of the command that last made it active: dead deliveries count from there.
  activation      bigint NOT NULL,
  -- Sealed under SECRET_KEY.
  secret          text NOT NULL,
  -- The secret before, good until then; null: none is.
  previous_secret text,
  previous_until  bigint,
  -- Nothing at or below this height is sent; -1: everything is.
  from_block      bigint NOT NULL
);
CREATE INDEX webhooks_by_user ON {{schema}}.webhooks (user_id, id);

-- Users whom an operator has shut out: while one is, nothing is matched with its webhooks, and nothing sent.
CREATE TABLE {{schema}}.shut_out_users (
  user_id bigint PRIMARY KEY
);

CREATE TABLE {{schema}}.webhook_subscriptions (
  -- 1000 times the offset, plus one, of the command that made it, and its place in that.
  id          bigint PRIMARY KEY,
  webhook_id  bigint NOT NULL REFERENCES {{schema}}.webhooks ON DELETE CASCADE DEFERRABLE,
  -- '': any
  token       text NOT NULL,
  address     text NOT NULL,
  -- Decimals as they were sent; '': none. Texts alone: a snapshot would round numbers.
  price_above text NOT NULL,
  price_below text NOT NULL
);
CREATE INDEX webhook_subscriptions_by_webhook ON {{schema}}.webhook_subscriptions (webhook_id);
CREATE INDEX webhook_subscriptions_by_token ON {{schema}}.webhook_subscriptions (token) WHERE address = '';
CREATE INDEX webhook_subscriptions_by_address ON {{schema}}.webhook_subscriptions (address) WHERE address <> '';
CREATE INDEX webhook_subscriptions_by_price ON {{schema}}.webhook_subscriptions (token)
  WHERE price_above <> '' OR price_below <> '';

-- What the dispatcher is to do, in this order. Tests and retries are kept for 48 h of the log's time; a deletion is kept,
-- so that the deliveries of a webhook go whenever the dispatcher comes to it.
CREATE TABLE {{schema}}.webhook_requests (
  command_offset bigint PRIMARY KEY,
  kind           text NOT NULL CHECK (kind IN ('test', 'retry', 'delete')),
  webhook_id     bigint NOT NULL,
  -- null of a deletion
  delivery_id    uuid,
  issued_at      bigint NOT NULL
);
CREATE INDEX webhook_requests_by_time ON {{schema}}.webhook_requests (issued_at) WHERE kind <> 'delete';
