-- Entries of operators, and what callers register or report. Times are unix milliseconds of the command (`issued_at`)
-- unless stated otherwise. No row is ever deleted, so an id, which is one more than the highest of its table, is never
-- used twice. An entry that is no longer shown is not active.

CREATE TABLE {{schema}}.categories (
  id         bigint PRIMARY KEY,
  slug       text NOT NULL UNIQUE,
  name       text NOT NULL,
  icon       text NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL
);

CREATE TABLE {{schema}}.dapps (
  id                 bigint PRIMARY KEY,
  slug               text NOT NULL UNIQUE,
  name               text NOT NULL,
  tagline            text NOT NULL,
  description        text NOT NULL,
  url                text NOT NULL,
  website_url        text NOT NULL,
  docs_url           text NOT NULL,
  logo_url           text NOT NULL,
  banner_url         text NOT NULL,
  -- Of a category; null: none
  category           text,
  tags               jsonb NOT NULL,
  networks           jsonb NOT NULL,
  twitter_url        text NOT NULL,
  discord_url        text NOT NULL,
  telegram_url       text NOT NULL,
  github_url         text NOT NULL,
  tvl_usd            double precision,
  daily_users        bigint NOT NULL,
  total_transactions bigint NOT NULL,
  -- Two places
  rating             text NOT NULL,
  review_count       bigint NOT NULL,
  is_featured        boolean NOT NULL,
  is_verified        boolean NOT NULL,
  is_active          boolean NOT NULL,
  launched_at        bigint,
  created_at         bigint NOT NULL,
  updated_at         bigint NOT NULL,
  -- The words by which it is found (words.ts)
  words              tsvector NOT NULL
);
CREATE INDEX dapps_by_category ON {{schema}}.dapps (category);
CREATE INDEX dapps_by_words ON {{schema}}.dapps USING gin (words);

CREATE TABLE {{schema}}.ads (
  id                     bigint PRIMARY KEY,
  key                    text NOT NULL UNIQUE,
  placement              text NOT NULL,
  title                  text NOT NULL,
  description            text NOT NULL,
  image_url              text NOT NULL,
  target_url             text NOT NULL,
  cta_text               text NOT NULL,
  -- null: any
  network                text,
  category               text,
  priority               bigint NOT NULL,
  starts_at              bigint,
  ends_at                bigint,
  total_impression_limit bigint,
  is_active              boolean NOT NULL,
  created_at             bigint NOT NULL,
  updated_at             bigint NOT NULL
);
CREATE INDEX ads_by_placement ON {{schema}}.ads (placement);

CREATE TABLE {{schema}}.domains (
  id           bigint PRIMARY KEY,
  domain       text NOT NULL UNIQUE,
  status       text NOT NULL,
  category     text NOT NULL,
  risk_level   text,
  reason       text NOT NULL,
  source       text NOT NULL,
  evidence_url text NOT NULL,
  active       boolean NOT NULL,
  created_at   bigint NOT NULL,
  updated_at   bigint NOT NULL,
  -- The offset, plus one, of the command that last changed it: the order of changes.
  changed      bigint NOT NULL,
  -- The same of the command since which it has been in force (active, and not pending); null: it is not in force.
  in_force_since bigint
);
CREATE INDEX domains_by_change ON {{schema}}.domains (changed, id);
CREATE INDEX domains_by_status ON {{schema}}.domains (status, id) WHERE active;
-- For searches by a part of a name. pg_trgm is optional.
DO $$
DECLARE
  home text := (SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'pg_trgm');
BEGIN
  IF home IS NOT NULL THEN
    EXECUTE format('CREATE INDEX domains_by_part ON {{schema}}.domains USING gin (domain %s.gin_trgm_ops)', home);
  END IF;
END
$$;

-- The number of domains of each kind: counting half a million takes a tenth of a second.
CREATE TABLE {{schema}}.domain_counts (
  status text NOT NULL,
  active boolean NOT NULL,
  n      bigint NOT NULL,
  PRIMARY KEY (status, active)
);

CREATE TABLE {{schema}}.domain_reports (
  id          bigint PRIMARY KEY,
  user_id     bigint NOT NULL,
  domain      text NOT NULL,
  category    text NOT NULL,
  reason      text NOT NULL,
  evidence    text NOT NULL,
  -- pending, approved, rejected
  status      text NOT NULL,
  created_at  bigint NOT NULL,
  reviewed_at bigint
);
CREATE INDEX domain_reports_by_user ON {{schema}}.domain_reports (user_id, id);
CREATE INDEX domain_reports_by_status ON {{schema}}.domain_reports (status, id);

CREATE TABLE {{schema}}.class_hashes (
  id           bigint PRIMARY KEY,
  network      text NOT NULL,
  account_type text NOT NULL,
  class_hash   text NOT NULL,
  version      text NOT NULL,
  is_active    boolean NOT NULL,
  released_at  bigint,
  created_at   bigint NOT NULL,
  updated_at   bigint NOT NULL,
  UNIQUE (network, account_type, class_hash)
);

CREATE TABLE {{schema}}.wallets (
  id                bigint PRIMARY KEY,
  wallet_address    text NOT NULL,
  network           text NOT NULL,
  wallet_type       text NOT NULL,
  status            text NOT NULL,
  is_verified       boolean NOT NULL,
  is_active         boolean NOT NULL,
  transaction_count bigint NOT NULL,
  last_activity_at  bigint,
  created_at        bigint NOT NULL,
  updated_at        bigint NOT NULL,
  UNIQUE (wallet_address, network)
);
CREATE INDEX wallets_by_network ON {{schema}}.wallets (network, id);

CREATE TABLE {{schema}}.wallet_counts (
  network  text PRIMARY KEY,
  total    bigint NOT NULL,
  active   bigint NOT NULL,
  verified bigint NOT NULL
);

-- Parts of imports that are not complete yet; deleted after 48 h of the log's time.
CREATE TABLE {{schema}}.import_parts (
  import_id text NOT NULL,
  part      bigint NOT NULL,
  records   jsonb NOT NULL,
  issued_at bigint NOT NULL,
  PRIMARY KEY (import_id, part)
);
