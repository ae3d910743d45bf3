-- Webhooks and their subscriptions. Times are unix milliseconds of the command (`issued_at`).

CREATE TABLE {{schema}}.webhooks (
  -- The offset of the command that created it, plus one.
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
  -- The offset, plus one, of the command that last activated it: dead deliveries count from there.
  activation      bigint NOT NULL,
  -- Sealed under SECRET_KEY.
  secret          text NOT NULL,
  -- The previous secret, valid until then; null: none.
  previous_secret text,
  previous_until  bigint,
  -- Events at or below this height are not sent; -1: all are.
  from_block      bigint NOT NULL
);
CREATE INDEX webhooks_by_user ON {{schema}}.webhooks (user_id, id);

-- Disabled users: nothing is matched with their webhooks, and nothing is sent to them.
CREATE TABLE {{schema}}.disabled_owners (
  user_id bigint PRIMARY KEY
);

CREATE TABLE {{schema}}.webhook_subscriptions (
  -- 1000 times the offset, plus one, of the command that created it, plus its index in that.
  id          bigint PRIMARY KEY,
  webhook_id  bigint NOT NULL REFERENCES {{schema}}.webhooks ON DELETE CASCADE DEFERRABLE,
  -- '': any
  token       text NOT NULL,
  address     text NOT NULL,
  -- Decimals as sent; '': none. Text, because a snapshot would round numbers.
  price_above text NOT NULL,
  price_below text NOT NULL
);
CREATE INDEX webhook_subscriptions_by_webhook ON {{schema}}.webhook_subscriptions (webhook_id);
CREATE INDEX webhook_subscriptions_by_token ON {{schema}}.webhook_subscriptions (token) WHERE address = '';
CREATE INDEX webhook_subscriptions_by_address ON {{schema}}.webhook_subscriptions (address) WHERE address <> '';
CREATE INDEX webhook_subscriptions_by_price ON {{schema}}.webhook_subscriptions (token)
  WHERE price_above <> '' OR price_below <> '';

-- Requests to the dispatcher, in this order. Tests and retries are kept for 48 h of the log's time; deletions for ever, so
-- that a dispatcher that was stopped for long still deletes the deliveries of the webhook.
CREATE TABLE {{schema}}.webhook_requests (
  command_offset bigint PRIMARY KEY,
  kind           text NOT NULL CHECK (kind IN ('test', 'retry', 'delete')),
  webhook_id     bigint NOT NULL,
  -- null of a deletion
  delivery_id    uuid,
  issued_at      bigint NOT NULL
);
CREATE INDEX webhook_requests_by_time ON {{schema}}.webhook_requests (issued_at) WHERE kind <> 'delete';
