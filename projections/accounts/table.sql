-- Who may use the service. Ids are the offset of the command that made the row, plus one.
-- Times are unix milliseconds of the command (`issued_at`).

CREATE TABLE {{schema}}.users (
  id            bigint PRIMARY KEY,
  username      text NOT NULL,
  email         text,
  -- What a login is compared with: no two users share a name, be it a username or an e-mail address.
  username_key  text NOT NULL UNIQUE,
  email_key     text UNIQUE,
  -- argon2id, PHC string format
  password_hash text NOT NULL,
  is_admin      boolean NOT NULL,
  created_at    bigint NOT NULL,
  -- When an operator disabled the user; null: the user may log in.
  disabled_at   bigint
);

CREATE TABLE {{schema}}.sessions (
  -- SHA-256 of the token, hex
  token_hash text PRIMARY KEY,
  user_id    bigint NOT NULL REFERENCES {{schema}}.users DEFERRABLE,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL
);
CREATE INDEX sessions_by_expiry ON {{schema}}.sessions (expires_at);
CREATE INDEX sessions_by_user ON {{schema}}.sessions (user_id);

CREATE TABLE {{schema}}.api_keys (
  id                  bigint PRIMARY KEY,
  user_id             bigint NOT NULL REFERENCES {{schema}}.users DEFERRABLE,
  name                text NOT NULL,
  -- SHA-256 of the key, hex
  key_hash            text NOT NULL UNIQUE,
  prefix              text NOT NULL,
  allowed_origins     text[] NOT NULL,
  allowed_ips         text[] NOT NULL,
  rate_limit_per_hour integer,
  created_at          bigint NOT NULL,
  -- The key is as good as deleted from then on; null: it stays good.
  expires_at          bigint
);
CREATE INDEX api_keys_by_user ON {{schema}}.api_keys (user_id, id);
