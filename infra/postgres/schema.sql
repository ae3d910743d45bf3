-- Written by `npm run schema:dump`. Do not edit.

CREATE TABLE accounts_v2_b1.api_keys (
  id bigint NOT NULL,
  user_id bigint NOT NULL,
  name text NOT NULL,
  key_hash text NOT NULL,
  prefix text NOT NULL,
  allowed_origins text[] NOT NULL,
  allowed_ips text[] NOT NULL,
  rate_limit_per_hour integer,
  created_at bigint NOT NULL,
  expires_at bigint,
  CONSTRAINT api_keys_key_hash_key UNIQUE (key_hash),
  CONSTRAINT api_keys_pkey PRIMARY KEY (id),
  CONSTRAINT api_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES accounts_v2_b1.users(id) DEFERRABLE
);

CREATE TABLE accounts_v2_b1.command_outcomes (
  id text NOT NULL,
  type text NOT NULL,
  issued_at bigint NOT NULL,
  request_hash text,
  accepted boolean NOT NULL,
  result jsonb NOT NULL,
  CONSTRAINT command_outcomes_pkey PRIMARY KEY (id)
);

CREATE TABLE accounts_v2_b1.sessions (
  token_hash text NOT NULL,
  user_id bigint NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  CONSTRAINT sessions_pkey PRIMARY KEY (token_hash),
  CONSTRAINT sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES accounts_v2_b1.users(id) DEFERRABLE
);

CREATE TABLE accounts_v2_b1.users (
  id bigint NOT NULL,
  username text NOT NULL,
  email text,
  username_key text NOT NULL,
  email_key text,
  password_hash text NOT NULL,
  is_admin boolean NOT NULL,
  created_at bigint NOT NULL,
  disabled_at bigint,
  CONSTRAINT users_email_key_key UNIQUE (email_key),
  CONSTRAINT users_pkey PRIMARY KEY (id),
  CONSTRAINT users_username_key_key UNIQUE (username_key)
);

CREATE TABLE ad_counts_v1_b1.ad_counts (
  ad_id bigint NOT NULL,
  impressions bigint NOT NULL,
  clicks bigint NOT NULL,
  CONSTRAINT ad_counts_pkey PRIMARY KEY (ad_id)
);

CREATE TABLE ad_counts_v1_b1.ad_events (
  id text NOT NULL,
  observed_at bigint NOT NULL,
  CONSTRAINT ad_events_pkey PRIMARY KEY (id)
);

CREATE TABLE balances_v2_b1.anchors (
  account text NOT NULL,
  token text NOT NULL,
  block bigint NOT NULL,
  block_hash text NOT NULL,
  balance numeric(78,0) NOT NULL,
  observed_at bigint NOT NULL,
  requested_at bigint NOT NULL,
  CONSTRAINT anchors_pkey PRIMARY KEY (account, token, block, block_hash)
);

CREATE TABLE balances_v2_b1.refusals (
  account text NOT NULL,
  token text NOT NULL,
  reason text NOT NULL,
  block bigint NOT NULL,
  block_hash text NOT NULL,
  refused_at bigint NOT NULL,
  requested_at bigint NOT NULL,
  CONSTRAINT refusals_pkey PRIMARY KEY (account, token)
);

CREATE TABLE catalogue_v2_b1.ads (
  id bigint NOT NULL,
  key text NOT NULL,
  placement text NOT NULL,
  title text NOT NULL,
  description text NOT NULL,
  image_url text NOT NULL,
  target_url text NOT NULL,
  cta_text text NOT NULL,
  network text,
  category text,
  priority bigint NOT NULL,
  starts_at bigint,
  ends_at bigint,
  total_impression_limit bigint,
  is_active boolean NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  CONSTRAINT ads_key_key UNIQUE (key),
  CONSTRAINT ads_pkey PRIMARY KEY (id)
);

CREATE TABLE catalogue_v2_b1.categories (
  id bigint NOT NULL,
  slug text NOT NULL,
  name text NOT NULL,
  icon text NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  CONSTRAINT categories_pkey PRIMARY KEY (id),
  CONSTRAINT categories_slug_key UNIQUE (slug)
);

CREATE TABLE catalogue_v2_b1.class_hashes (
  id bigint NOT NULL,
  network text NOT NULL,
  account_type text NOT NULL,
  class_hash text NOT NULL,
  version text NOT NULL,
  is_active boolean NOT NULL,
  released_at bigint,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  CONSTRAINT class_hashes_network_account_type_class_hash_key UNIQUE (network, account_type, class_hash),
  CONSTRAINT class_hashes_pkey PRIMARY KEY (id)
);

CREATE TABLE catalogue_v2_b1.command_outcomes (
  id text NOT NULL,
  type text NOT NULL,
  issued_at bigint NOT NULL,
  request_hash text,
  accepted boolean NOT NULL,
  result jsonb NOT NULL,
  CONSTRAINT command_outcomes_pkey PRIMARY KEY (id)
);

CREATE TABLE catalogue_v2_b1.dapps (
  id bigint NOT NULL,
  slug text NOT NULL,
  name text NOT NULL,
  tagline text NOT NULL,
  description text NOT NULL,
  url text NOT NULL,
  website_url text NOT NULL,
  docs_url text NOT NULL,
  logo_url text NOT NULL,
  banner_url text NOT NULL,
  category text,
  tags jsonb NOT NULL,
  networks jsonb NOT NULL,
  twitter_url text NOT NULL,
  discord_url text NOT NULL,
  telegram_url text NOT NULL,
  github_url text NOT NULL,
  tvl_usd double precision,
  daily_users bigint NOT NULL,
  total_transactions bigint NOT NULL,
  rating text NOT NULL,
  review_count bigint NOT NULL,
  is_featured boolean NOT NULL,
  is_verified boolean NOT NULL,
  is_active boolean NOT NULL,
  launched_at bigint,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  words tsvector NOT NULL,
  CONSTRAINT dapps_pkey PRIMARY KEY (id),
  CONSTRAINT dapps_slug_key UNIQUE (slug)
);

CREATE TABLE catalogue_v2_b1.domain_counts (
  status text NOT NULL,
  active boolean NOT NULL,
  n bigint NOT NULL,
  CONSTRAINT domain_counts_pkey PRIMARY KEY (status, active)
);

CREATE TABLE catalogue_v2_b1.domain_reports (
  id bigint NOT NULL,
  user_id bigint NOT NULL,
  domain text NOT NULL,
  category text NOT NULL,
  reason text NOT NULL,
  evidence text NOT NULL,
  status text NOT NULL,
  created_at bigint NOT NULL,
  reviewed_at bigint,
  CONSTRAINT domain_reports_pkey PRIMARY KEY (id)
);

CREATE TABLE catalogue_v2_b1.domains (
  id bigint NOT NULL,
  domain text NOT NULL,
  status text NOT NULL,
  category text NOT NULL,
  risk_level text,
  reason text NOT NULL,
  source text NOT NULL,
  evidence_url text NOT NULL,
  active boolean NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  changed bigint NOT NULL,
  in_force_since bigint,
  CONSTRAINT domains_domain_key UNIQUE (domain),
  CONSTRAINT domains_pkey PRIMARY KEY (id)
);

CREATE TABLE catalogue_v2_b1.import_parts (
  import_id text NOT NULL,
  part bigint NOT NULL,
  records jsonb NOT NULL,
  issued_at bigint NOT NULL,
  CONSTRAINT import_parts_pkey PRIMARY KEY (import_id, part)
);

CREATE TABLE catalogue_v2_b1.wallet_counts (
  network text NOT NULL,
  total bigint NOT NULL,
  active bigint NOT NULL,
  verified bigint NOT NULL,
  CONSTRAINT wallet_counts_pkey PRIMARY KEY (network)
);

CREATE TABLE catalogue_v2_b1.wallets (
  id bigint NOT NULL,
  wallet_address text NOT NULL,
  network text NOT NULL,
  wallet_type text NOT NULL,
  status text NOT NULL,
  is_verified boolean NOT NULL,
  is_active boolean NOT NULL,
  transaction_count bigint NOT NULL,
  last_activity_at bigint,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  CONSTRAINT wallets_pkey PRIMARY KEY (id),
  CONSTRAINT wallets_wallet_address_network_key UNIQUE (wallet_address, network)
);

CREATE TABLE chain_status_v2_b1.chunks (
  name text NOT NULL,
  first_height bigint NOT NULL,
  last_height bigint,
  opened_at bigint NOT NULL,
  finished_at bigint,
  CONSTRAINT chunks_pkey PRIMARY KEY (name)
);

CREATE TABLE chain_status_v2_b1.final_heights (
  height bigint NOT NULL,
  log_ends bigint[] NOT NULL,
  CONSTRAINT final_heights_pkey PRIMARY KEY (height)
);

CREATE TABLE chain_status_v2_b1.status (
  singleton boolean DEFAULT true NOT NULL,
  chain_id text,
  spec_version text,
  has_header_counts boolean,
  has_l1_tag boolean,
  head_height bigint,
  head_hash text,
  head_seen_at bigint,
  l1_height bigint,
  l1_seen_at bigint,
  CONSTRAINT status_pkey PRIMARY KEY (singleton),
  CONSTRAINT status_singleton_check CHECK (singleton)
);

CREATE TABLE key_use_v1_b1.key_use (
  key_id bigint NOT NULL,
  last_used_at bigint NOT NULL,
  CONSTRAINT key_use_pkey PRIMARY KEY (key_id)
);

CREATE TABLE latest_prices_v1_b1.latest_prices (
  token text NOT NULL,
  price text,
  source text,
  observed_at bigint,
  requested_at bigint NOT NULL,
  CONSTRAINT latest_prices_pkey PRIMARY KEY (token)
);

CREATE TABLE nft_metadata_v1_b1.nft_metadata (
  token text NOT NULL,
  token_id numeric(78,0) NOT NULL,
  is_fetched boolean NOT NULL,
  attempt_count integer NOT NULL,
  last_attempt_at bigint NOT NULL,
  retry_at bigint,
  reason text,
  has_reverted boolean NOT NULL,
  uri text,
  name text,
  description text,
  image text,
  external_url text,
  animation_url text,
  attributes jsonb NOT NULL,
  CONSTRAINT nft_metadata_pkey PRIMARY KEY (token, token_id)
);

CREATE TABLE quarantine_v3_b1.entries (
  id text NOT NULL,
  kind text NOT NULL,
  reason text NOT NULL,
  quarantined_at bigint NOT NULL,
  last_tried_at bigint NOT NULL,
  resolution text,
  resolved_at bigint,
  block bigint,
  block_hash text,
  "position" bigint,
  transaction_hash text,
  event jsonb,
  topic text,
  partition integer,
  message_offset text,
  value text,
  CONSTRAINT entries_kind_check CHECK ((kind = ANY (ARRAY['event'::text, 'message'::text]))),
  CONSTRAINT entries_pkey PRIMARY KEY (id)
);

CREATE TABLE sync_v1_b1.command_outcomes (
  id text NOT NULL,
  type text NOT NULL,
  issued_at bigint NOT NULL,
  request_hash text,
  accepted boolean NOT NULL,
  result jsonb NOT NULL,
  CONSTRAINT command_outcomes_pkey PRIMARY KEY (id)
);

CREATE TABLE sync_v1_b1.sync_blobs (
  lookup_hash text NOT NULL,
  version bigint NOT NULL,
  blob text NOT NULL,
  auth_key text NOT NULL,
  key_command text NOT NULL,
  last_modified bigint NOT NULL,
  CONSTRAINT sync_blobs_pkey PRIMARY KEY (lookup_hash)
);

CREATE TABLE tds.alarms (
  name text NOT NULL,
  detail text NOT NULL,
  raised_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT alarms_pkey PRIMARY KEY (name)
);

CREATE TABLE tds.builds (
  projection text NOT NULL,
  build integer NOT NULL,
  version integer NOT NULL,
  shape_hash text NOT NULL,
  state text NOT NULL,
  created_at timestamp with time zone DEFAULT now() NOT NULL,
  names jsonb DEFAULT '{}'::jsonb NOT NULL,
  retired_at timestamp with time zone,
  pass bigint DEFAULT 0 NOT NULL,
  sources jsonb,
  CONSTRAINT builds_pkey PRIMARY KEY (projection, build),
  CONSTRAINT builds_state_check CHECK ((state = ANY (ARRAY['building'::text, 'serving'::text, 'retired'::text])))
);

CREATE TABLE tds.chain (
  singleton boolean DEFAULT true NOT NULL,
  chain_id text NOT NULL,
  announced jsonb,
  commitments_hold boolean DEFAULT false NOT NULL,
  hashed_versions text[] DEFAULT '{}'::text[] NOT NULL,
  CONSTRAINT chain_pkey PRIMARY KEY (singleton),
  CONSTRAINT chain_singleton_check CHECK (singleton)
);

CREATE TABLE tds.checkpoints (
  consumer text NOT NULL,
  build integer DEFAULT 0 NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  topic_id text NOT NULL,
  next_offset bigint NOT NULL,
  updated_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT checkpoints_pkey PRIMARY KEY (consumer, build, topic, partition)
);

CREATE VIEW tds.chunk_map AS
 SELECT name,
    range_start,
    range_end,
    cursor,
    final_height,
    status,
        CASE
            WHEN lease_until > now() THEN holder
            ELSE NULL::text
        END AS writer,
    updated_at
   FROM tds.chunks;

CREATE VIEW tds.chunk_writers AS
 SELECT name,
    range_end IS NULL AS is_live,
    COALESCE(lease_until > now(), false) AS held,
    updated_at
   FROM tds.chunks
  WHERE status = 'open'::text;

CREATE TABLE tds.chunks (
  name text NOT NULL,
  range_start bigint NOT NULL,
  range_end bigint,
  cursor bigint NOT NULL,
  final_height bigint NOT NULL,
  final_hash text,
  first_parent text,
  plan_to bigint DEFAULT '-1'::integer NOT NULL,
  plan_facts jsonb DEFAULT '{}'::jsonb NOT NULL,
  status text DEFAULT 'open'::text NOT NULL,
  opened boolean DEFAULT false NOT NULL,
  holder text,
  epoch bigint DEFAULT 0 NOT NULL,
  lease_until timestamp with time zone,
  seq_ceiling bigint DEFAULT 0 NOT NULL,
  updated_at timestamp with time zone DEFAULT now() NOT NULL,
  revision bigint DEFAULT 0 NOT NULL,
  CONSTRAINT chunks_check CHECK ((range_end >= range_start)),
  CONSTRAINT chunks_disjoint EXCLUDE USING gist (int8range(range_start, range_end, '[]'::text) WITH &&),
  CONSTRAINT chunks_pkey PRIMARY KEY (name),
  CONSTRAINT chunks_range_start_check CHECK ((range_start >= 0)),
  CONSTRAINT chunks_status_check CHECK ((status = ANY (ARRAY['open'::text, 'finished'::text])))
);

CREATE TABLE tds.commitment_checks (
  commitment text NOT NULL,
  starknet_version text NOT NULL,
  outcome text NOT NULL,
  blocks bigint NOT NULL,
  from_height bigint,
  to_height bigint,
  last_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT commitment_checks_pkey PRIMARY KEY (commitment, starknet_version, outcome)
);

CREATE TABLE tds.conservation (
  singleton boolean DEFAULT true NOT NULL,
  checked_at timestamp with time zone DEFAULT now() NOT NULL,
  seconds double precision NOT NULL,
  to_height bigint NOT NULL,
  tokens bigint NOT NULL,
  nonzero jsonb NOT NULL,
  CONSTRAINT conservation_pkey PRIMARY KEY (singleton),
  CONSTRAINT conservation_singleton_check CHECK (singleton)
);

CREATE TABLE tds.contract_standards (
  contract text NOT NULL,
  standard text NOT NULL,
  class_hash text,
  basis text NOT NULL,
  block bigint NOT NULL,
  classified_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT contract_standards_basis_check CHECK ((basis = ANY (ARRAY['abi'::text, 'src5'::text, 'decimals'::text, 'nothing'::text, 'operator'::text]))),
  CONSTRAINT contract_standards_pkey PRIMARY KEY (contract),
  CONSTRAINT contract_standards_standard_check CHECK ((standard = ANY (ARRAY['erc20'::text, 'erc721'::text, 'erc1155'::text, 'unknown'::text])))
);

CREATE TABLE tds.dispatch_blocks (
  height bigint NOT NULL,
  hash text NOT NULL,
  seq bigint NOT NULL,
  parent_hash text,
  CONSTRAINT dispatch_blocks_pkey PRIMARY KEY (height)
);

CREATE TABLE tds.dispatch_prices (
  token text NOT NULL,
  price numeric NOT NULL,
  observed_at bigint NOT NULL,
  CONSTRAINT dispatch_prices_pkey PRIMARY KEY (token)
);

CREATE TABLE tds.history (
  step smallint NOT NULL,
  at timestamp with time zone NOT NULL,
  head_height bigint,
  log_height bigint,
  indexed_height bigint,
  lag_blocks bigint,
  lag_seconds double precision,
  blocks bigint,
  transfers bigint,
  CONSTRAINT history_pkey PRIMARY KEY (step, at)
);

CREATE TABLE tds.migrations (
  name text NOT NULL,
  applied_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT migrations_pkey PRIMARY KEY (name)
);

CREATE TABLE tds.nft_fetches (
  token text NOT NULL,
  token_id numeric(78,0) NOT NULL,
  standard text NOT NULL,
  failures integer DEFAULT 0 NOT NULL,
  troubles integer DEFAULT 0 NOT NULL,
  next_at bigint,
  asked_at bigint,
  host text,
  last_error text,
  message jsonb,
  done_at bigint,
  CONSTRAINT nft_fetches_pkey PRIMARY KEY (token, token_id)
);

CREATE TABLE tds.observer_attempts (
  observer text NOT NULL,
  subject text NOT NULL,
  task jsonb NOT NULL,
  facts text NOT NULL,
  revision bigint DEFAULT 0 NOT NULL,
  attempts integer DEFAULT 0 NOT NULL,
  next_at bigint,
  last_error text,
  message jsonb,
  done_at bigint,
  CONSTRAINT observer_attempts_pkey PRIMARY KEY (observer, subject)
);

CREATE VIEW tds.observer_progress AS
 SELECT a.observer,
    min(a.next_at) AS first_due,
    max(a.next_at) AS last_due,
    ( SELECT max(d.done_at) AS max
           FROM tds.observer_attempts d
          WHERE d.observer = a.observer AND d.done_at IS NOT NULL) AS done_at
   FROM tds.observer_attempts a
  WHERE a.next_at IS NOT NULL
  GROUP BY a.observer
UNION ALL
 SELECT 'nft'::text AS observer,
    min(nft_fetches.next_at) AS first_due,
    max(nft_fetches.next_at) AS last_due,
    ( SELECT max(nft_fetches_1.done_at) AS max
           FROM tds.nft_fetches nft_fetches_1
          WHERE nft_fetches_1.done_at IS NOT NULL) AS done_at
   FROM tds.nft_fetches
  WHERE nft_fetches.next_at IS NOT NULL AND nft_fetches.standard <> 'unknown'::text AND nft_fetches.failures = 0
 HAVING count(*) > 0;

CREATE TABLE tds.operations (
  id text NOT NULL,
  operation text NOT NULL,
  subject text NOT NULL,
  swap boolean,
  requested_by text NOT NULL,
  requested_at timestamp with time zone NOT NULL,
  state text DEFAULT 'running'::text NOT NULL,
  detail text,
  attempts integer DEFAULT 1 NOT NULL,
  started_at timestamp with time zone DEFAULT now() NOT NULL,
  updated_at timestamp with time zone DEFAULT now() NOT NULL,
  finished_at timestamp with time zone,
  CONSTRAINT operations_pkey PRIMARY KEY (id),
  CONSTRAINT operations_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'failed'::text])))
);

CREATE VIEW tds.pending_repairs AS
 SELECT height,
    reason,
    requested_at,
    attempts,
    next_try_at
   FROM tds.repairs
  WHERE done_at IS NULL;

CREATE TABLE tds.price_backfilled (
  token text NOT NULL,
  source text NOT NULL,
  step_ms bigint NOT NULL,
  window_start bigint NOT NULL,
  points integer NOT NULL,
  last_price text,
  last_observed_at bigint,
  CONSTRAINT price_backfilled_pkey PRIMARY KEY (token, source, step_ms, window_start)
);

CREATE TABLE tds.price_watch (
  token text NOT NULL,
  common boolean NOT NULL,
  due_at bigint,
  claimed_until bigint DEFAULT 0 NOT NULL,
  read_at bigint,
  price text,
  observed_at bigint,
  published_at bigint,
  candidate_price text,
  candidate_observed_at bigint,
  refusal text,
  refusal_detail text,
  asked_at bigint,
  candidate_confirmations integer DEFAULT 0 NOT NULL,
  CONSTRAINT price_watch_pkey PRIMARY KEY (token)
);

CREATE VIEW tds.projection_checkpoints AS
 SELECT builds.projection,
    checkpoints.build,
    builds.version,
    builds.state,
    checkpoints.topic,
    checkpoints.partition,
    checkpoints.topic_id,
    checkpoints.next_offset,
    checkpoints.updated_at
   FROM tds.checkpoints
     JOIN tds.builds USING (build)
  WHERE checkpoints.consumer = builds.projection;

CREATE TABLE tds.projection_halts (
  projection text NOT NULL,
  build integer NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  message_offset bigint NOT NULL,
  reason text NOT NULL,
  halted_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT projection_halts_pkey PRIMARY KEY (projection, build, topic, partition)
);

CREATE TABLE tds.rebuild_runs (
  id uuid NOT NULL,
  projections text[] NOT NULL,
  requested_by text NOT NULL,
  state text DEFAULT 'running'::text NOT NULL,
  phase text DEFAULT 'reading'::text NOT NULL,
  messages_read bigint DEFAULT 0 NOT NULL,
  messages_total bigint DEFAULT 0 NOT NULL,
  rows_compared bigint DEFAULT 0 NOT NULL,
  differences integer DEFAULT 0 NOT NULL,
  differing jsonb DEFAULT '[]'::jsonb NOT NULL,
  is_swapped boolean DEFAULT false NOT NULL,
  error text,
  abort_requested_at timestamp with time zone,
  started_at timestamp with time zone DEFAULT now() NOT NULL,
  updated_at timestamp with time zone DEFAULT now() NOT NULL,
  finished_at timestamp with time zone,
  CONSTRAINT rebuild_runs_pkey PRIMARY KEY (id),
  CONSTRAINT rebuild_runs_state_check CHECK ((state = ANY (ARRAY['running'::text, 'finished'::text, 'failed'::text, 'aborted'::text])))
);

CREATE TABLE tds.recorded_blocks (
  chunk text NOT NULL,
  height bigint NOT NULL,
  hash text NOT NULL,
  parent_hash text NOT NULL,
  intent text NOT NULL,
  maps jsonb NOT NULL,
  body bytea NOT NULL,
  rereads bytea[] DEFAULT '{}'::bytea[] NOT NULL,
  CONSTRAINT recorded_blocks_chunk_fkey FOREIGN KEY (chunk) REFERENCES tds.chunks(name),
  CONSTRAINT recorded_blocks_intent_check CHECK ((intent = ANY (ARRAY['accept'::text, 'revert'::text]))),
  CONSTRAINT recorded_blocks_pkey PRIMARY KEY (chunk, height)
);

CREATE TABLE tds.repairing_ranges (
  range integer NOT NULL,
  CONSTRAINT repairing_ranges_pkey PRIMARY KEY (range)
);

CREATE TABLE tds.repairs (
  id bigint GENERATED AS IDENTITY NOT NULL,
  height bigint NOT NULL,
  reason text NOT NULL,
  round integer DEFAULT 1 NOT NULL,
  maps jsonb DEFAULT '[]'::jsonb NOT NULL,
  requested_at timestamp with time zone DEFAULT now() NOT NULL,
  done_at timestamp with time zone,
  reread boolean DEFAULT false NOT NULL,
  attempts integer DEFAULT 0 NOT NULL,
  next_try_at timestamp with time zone DEFAULT now() NOT NULL,
  replaces_orphan boolean DEFAULT false NOT NULL,
  CONSTRAINT repairs_pkey PRIMARY KEY (id)
);

CREATE VIEW tds.repairs_left AS
 SELECT count(*) AS pending,
    min(requested_at) AS oldest
   FROM tds.repairs
  WHERE done_at IS NULL;

CREATE TABLE tds.role_processes (
  role text NOT NULL,
  process text NOT NULL,
  started_at timestamp with time zone DEFAULT now() NOT NULL,
  seen_at timestamp with time zone DEFAULT now() NOT NULL,
  stopped_at timestamp with time zone,
  CONSTRAINT role_processes_pkey PRIMARY KEY (role, process)
);

CREATE TABLE tds.served (
  singleton boolean DEFAULT true NOT NULL,
  tables jsonb NOT NULL,
  schemas jsonb NOT NULL,
  repairs integer DEFAULT 0 NOT NULL,
  CONSTRAINT served_pkey PRIMARY KEY (singleton),
  CONSTRAINT served_singleton_check CHECK (singleton)
);

CREATE TABLE tds.skips (
  projection text NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  message_offset bigint NOT NULL,
  skipped_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT skips_pkey PRIMARY KEY (projection, topic, partition, message_offset)
);

CREATE TABLE tds.token_list (
  token text NOT NULL,
  verified boolean NOT NULL,
  common boolean NOT NULL,
  public boolean NOT NULL,
  logo text,
  CONSTRAINT token_list_pkey PRIMARY KEY (token)
);

CREATE TABLE tds.verify_runs (
  id bigint GENERATED AS IDENTITY NOT NULL,
  started_at timestamp with time zone NOT NULL,
  finished_at timestamp with time zone DEFAULT now() NOT NULL,
  outcome text NOT NULL,
  from_height bigint,
  to_height bigint,
  messages bigint DEFAULT 0 NOT NULL,
  differences integer DEFAULT 0 NOT NULL,
  found integer DEFAULT 0 NOT NULL,
  repaired_rows bigint DEFAULT 0 NOT NULL,
  first_differences jsonb DEFAULT '[]'::jsonb NOT NULL,
  error text,
  CONSTRAINT verify_runs_outcome_check CHECK ((outcome = ANY (ARRAY['no differences'::text, 'differences'::text, 'inconclusive'::text]))),
  CONSTRAINT verify_runs_pkey PRIMARY KEY (id)
);

CREATE TABLE tds.verify_samples (
  singleton boolean DEFAULT true NOT NULL,
  since timestamp with time zone DEFAULT now() NOT NULL,
  blocks bigint NOT NULL,
  differences bigint NOT NULL,
  last_height bigint NOT NULL,
  last_at timestamp with time zone DEFAULT now() NOT NULL,
  last_difference_height bigint,
  last_difference_at timestamp with time zone,
  CONSTRAINT verify_samples_pkey PRIMARY KEY (singleton),
  CONSTRAINT verify_samples_singleton_check CHECK (singleton)
);

CREATE TABLE tds.webhook_deletions (
  webhook_id bigint NOT NULL,
  requested_at bigint NOT NULL,
  deleted bigint DEFAULT 0 NOT NULL,
  CONSTRAINT webhook_deletions_pkey PRIMARY KEY (webhook_id)
);

CREATE TABLE tds.webhook_deliveries (
  id uuid NOT NULL,
  webhook_id bigint NOT NULL,
  event text NOT NULL,
  body text NOT NULL,
  is_test boolean DEFAULT false NOT NULL,
  created_at bigint NOT NULL,
  status text DEFAULT 'pending'::text NOT NULL,
  attempts integer DEFAULT 0 NOT NULL,
  scheduled_attempts integer DEFAULT 0 NOT NULL,
  manual boolean DEFAULT false NOT NULL,
  scheduled_at bigint,
  manual_at bigint,
  due_at bigint,
  lease uuid,
  response_code integer,
  response_body text,
  error text,
  duration_ms integer,
  last_attempt_at bigint,
  subject uuid,
  block_hash text,
  block_seq bigint,
  reverted_height bigint,
  reverted_seq bigint,
  CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (id),
  CONSTRAINT webhook_deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'success'::text, 'failed'::text, 'dead'::text])))
);

CREATE TABLE tds.webhook_endpoints (
  webhook_id bigint NOT NULL,
  due_at bigint,
  activation bigint DEFAULT 0 NOT NULL,
  consecutive_dead integer DEFAULT 0 NOT NULL,
  last_delivery_at bigint,
  owner_disabled boolean DEFAULT false NOT NULL,
  CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (webhook_id)
);

CREATE TABLE tokens_v1_b1.tokens (
  token text NOT NULL,
  standard text,
  class_hash text,
  name text,
  symbol text,
  decimals smallint,
  first_block bigint,
  described_at bigint,
  described_offset bigint,
  verified boolean DEFAULT false NOT NULL,
  common boolean DEFAULT false NOT NULL,
  public boolean DEFAULT false NOT NULL,
  hidden boolean DEFAULT false NOT NULL,
  logo text,
  listed_at bigint,
  listed_offset bigint,
  CONSTRAINT tokens_pkey PRIMARY KEY (token)
);

CREATE TABLE unmoved_balances_v2_b1.answers (
  account text NOT NULL,
  token text NOT NULL,
  block bigint NOT NULL,
  block_hash text NOT NULL,
  balance numeric(78,0),
  reason text,
  observed_at bigint NOT NULL,
  requested_at bigint NOT NULL,
  stored_at bigint NOT NULL,
  partition smallint,
  CONSTRAINT answers_pkey PRIMARY KEY (account, token)
);

CREATE TABLE webhooks_v3_b1.command_outcomes (
  id text NOT NULL,
  type text NOT NULL,
  issued_at bigint NOT NULL,
  request_hash text,
  accepted boolean NOT NULL,
  result jsonb NOT NULL,
  CONSTRAINT command_outcomes_pkey PRIMARY KEY (id)
);

CREATE TABLE webhooks_v3_b1.disabled_owners (
  user_id bigint NOT NULL,
  CONSTRAINT disabled_owners_pkey PRIMARY KEY (user_id)
);

CREATE TABLE webhooks_v3_b1.webhook_requests (
  command_offset bigint NOT NULL,
  kind text NOT NULL,
  webhook_id bigint NOT NULL,
  delivery_id uuid,
  issued_at bigint NOT NULL,
  CONSTRAINT webhook_requests_kind_check CHECK ((kind = ANY (ARRAY['test'::text, 'retry'::text, 'delete'::text]))),
  CONSTRAINT webhook_requests_pkey PRIMARY KEY (command_offset)
);

CREATE TABLE webhooks_v3_b1.webhook_subscriptions (
  id bigint NOT NULL,
  webhook_id bigint NOT NULL,
  token text NOT NULL,
  address text NOT NULL,
  price_above text NOT NULL,
  price_below text NOT NULL,
  CONSTRAINT webhook_subscriptions_pkey PRIMARY KEY (id),
  CONSTRAINT webhook_subscriptions_webhook_id_fkey FOREIGN KEY (webhook_id) REFERENCES webhooks_v3_b1.webhooks(id) ON DELETE CASCADE DEFERRABLE
);

CREATE TABLE webhooks_v3_b1.webhooks (
  id bigint NOT NULL,
  user_id bigint NOT NULL,
  name text NOT NULL,
  url text NOT NULL,
  events text[] NOT NULL,
  status text NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  disabled_at bigint,
  disabled_reason text,
  activation bigint NOT NULL,
  secret text NOT NULL,
  previous_secret text,
  previous_until bigint,
  from_block bigint NOT NULL,
  CONSTRAINT webhooks_pkey PRIMARY KEY (id)
);

CREATE INDEX api_keys_by_user ON accounts_v2_b1.api_keys USING btree (user_id, id);

CREATE INDEX command_outcomes_by_time ON accounts_v2_b1.command_outcomes USING btree (issued_at);

CREATE INDEX sessions_by_expiry ON accounts_v2_b1.sessions USING btree (expires_at);

CREATE INDEX sessions_by_user ON accounts_v2_b1.sessions USING btree (user_id);

CREATE INDEX ad_events_by_time ON ad_counts_v1_b1.ad_events USING btree (observed_at);

CREATE INDEX ads_by_placement ON catalogue_v2_b1.ads USING btree (placement);

CREATE INDEX command_outcomes_by_time ON catalogue_v2_b1.command_outcomes USING btree (issued_at);

CREATE INDEX dapps_by_category ON catalogue_v2_b1.dapps USING btree (category);

CREATE INDEX dapps_by_words ON catalogue_v2_b1.dapps USING gin (words);

CREATE INDEX domain_reports_by_status ON catalogue_v2_b1.domain_reports USING btree (status, id);

CREATE INDEX domain_reports_by_user ON catalogue_v2_b1.domain_reports USING btree (user_id, id);

CREATE INDEX domains_by_change ON catalogue_v2_b1.domains USING btree (changed, id);

CREATE INDEX domains_by_part ON catalogue_v2_b1.domains USING gin (domain tds.gin_trgm_ops);

CREATE INDEX domains_by_status ON catalogue_v2_b1.domains USING btree (status, id) WHERE active;

CREATE INDEX wallets_by_network ON catalogue_v2_b1.wallets USING btree (network, id);

CREATE INDEX nft_metadata_fetched ON nft_metadata_v1_b1.nft_metadata USING btree (token, token_id) WHERE is_fetched;

CREATE INDEX entries_newest ON quarantine_v3_b1.entries USING btree (quarantined_at DESC, id);

CREATE INDEX entries_open ON quarantine_v3_b1.entries USING btree (kind, reason) WHERE (resolution IS NULL);

CREATE INDEX command_outcomes_by_time ON sync_v1_b1.command_outcomes USING btree (issued_at);

CREATE UNIQUE INDEX builds_one_served ON tds.builds USING btree (projection) WHERE (state = 'serving'::text);

CREATE INDEX nft_fetches_asked ON tds.nft_fetches USING btree (next_at) WHERE ((next_at IS NOT NULL) AND (asked_at IS NOT NULL));

CREATE INDEX nft_fetches_done ON tds.nft_fetches USING btree (done_at) WHERE (done_at IS NOT NULL);

CREATE INDEX nft_fetches_due ON tds.nft_fetches USING btree (next_at) WHERE ((next_at IS NOT NULL) AND (standard <> 'unknown'::text));

CREATE INDEX observer_attempts_done ON tds.observer_attempts USING btree (observer, done_at) WHERE (done_at IS NOT NULL);

CREATE INDEX observer_attempts_due ON tds.observer_attempts USING btree (observer, next_at) WHERE (next_at IS NOT NULL);

CREATE INDEX operations_newest ON tds.operations USING btree (requested_at DESC);

CREATE INDEX price_watch_due ON tds.price_watch USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX rebuild_runs_newest ON tds.rebuild_runs USING btree (started_at DESC);

CREATE INDEX repairs_by_height ON tds.repairs USING btree (height);

CREATE INDEX repairs_due ON tds.repairs USING btree (next_try_at, id) WHERE (done_at IS NULL);

CREATE UNIQUE INDEX repairs_one_pending ON tds.repairs USING btree (height) WHERE (done_at IS NULL);

CREATE INDEX webhook_deliveries_by_block ON tds.webhook_deliveries USING btree (block_hash) WHERE (event = 'balance.changed'::text);

CREATE INDEX webhook_deliveries_by_subject ON tds.webhook_deliveries USING btree (subject) WHERE (subject IS NOT NULL);

CREATE INDEX webhook_deliveries_due ON tds.webhook_deliveries USING btree (webhook_id, due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX webhook_deliveries_due_even_if_inactive ON tds.webhook_deliveries USING btree (webhook_id, due_at) WHERE ((due_at IS NOT NULL) AND ((manual_at IS NOT NULL) OR (is_test AND (attempts = 0))));

CREATE INDEX webhook_deliveries_filtered ON tds.webhook_deliveries USING btree (webhook_id, event, status, created_at DESC, id);

CREATE INDEX webhook_deliveries_finished ON tds.webhook_deliveries USING btree (created_at) WHERE (due_at IS NULL);

CREATE INDEX webhook_deliveries_listed ON tds.webhook_deliveries USING btree (webhook_id, created_at DESC, id);

CREATE INDEX webhook_deliveries_reverted ON tds.webhook_deliveries USING btree (reverted_height) WHERE (reverted_height IS NOT NULL);

CREATE INDEX webhook_endpoints_due ON tds.webhook_endpoints USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX webhook_endpoints_owner_disabled ON tds.webhook_endpoints USING btree (webhook_id) WHERE owner_disabled;

CREATE INDEX tokens_by_standard ON tokens_v1_b1.tokens USING btree (standard, token);

CREATE INDEX tokens_by_text ON tokens_v1_b1.tokens USING gin (name tds.gin_trgm_ops, symbol tds.gin_trgm_ops);

CREATE INDEX tokens_curated ON tokens_v1_b1.tokens USING btree (token) WHERE (verified OR common OR public OR hidden);

CREATE INDEX answers_partition_stored_at_idx ON unmoved_balances_v2_b1.answers USING btree (partition, stored_at);

CREATE INDEX command_outcomes_by_time ON webhooks_v3_b1.command_outcomes USING btree (issued_at);

CREATE INDEX webhook_requests_by_time ON webhooks_v3_b1.webhook_requests USING btree (issued_at) WHERE (kind <> 'delete'::text);

CREATE INDEX webhook_subscriptions_by_address ON webhooks_v3_b1.webhook_subscriptions USING btree (address) WHERE (address <> ''::text);

CREATE INDEX webhook_subscriptions_by_price ON webhooks_v3_b1.webhook_subscriptions USING btree (token) WHERE ((price_above <> ''::text) OR (price_below <> ''::text));

CREATE INDEX webhook_subscriptions_by_token ON webhooks_v3_b1.webhook_subscriptions USING btree (token) WHERE (address = ''::text);

CREATE INDEX webhook_subscriptions_by_webhook ON webhooks_v3_b1.webhook_subscriptions USING btree (webhook_id);

CREATE INDEX webhooks_by_user ON webhooks_v3_b1.webhooks USING btree (user_id, id);

CREATE OR REPLACE FUNCTION tds.gin_extract_query_trgm(text, internal, smallint, internal, internal, internal, internal)
 RETURNS internal
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gin_extract_query_trgm$function$;

CREATE OR REPLACE FUNCTION tds.gin_extract_value_trgm(text, internal)
 RETURNS internal
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gin_extract_value_trgm$function$;

CREATE OR REPLACE FUNCTION tds.gin_trgm_consistent(internal, smallint, text, integer, internal, internal, internal, internal)
 RETURNS boolean
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gin_trgm_consistent$function$;

CREATE OR REPLACE FUNCTION tds.gin_trgm_triconsistent(internal, smallint, text, integer, internal, internal, internal)
 RETURNS "char"
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gin_trgm_triconsistent$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_compress(internal)
 RETURNS internal
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_compress$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_consistent(internal, text, smallint, oid, internal)
 RETURNS boolean
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_consistent$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_decompress(internal)
 RETURNS internal
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_decompress$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_distance(internal, text, smallint, oid, internal)
 RETURNS double precision
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_distance$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_in(cstring)
 RETURNS tds.gtrgm
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_in$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_options(internal)
 RETURNS void
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE
AS '$libdir/pg_trgm', $function$gtrgm_options$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_out(tds.gtrgm)
 RETURNS cstring
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_out$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_penalty(internal, internal, internal)
 RETURNS internal
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_penalty$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_picksplit(internal, internal)
 RETURNS internal
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_picksplit$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_same(tds.gtrgm, tds.gtrgm, internal)
 RETURNS internal
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_same$function$;

CREATE OR REPLACE FUNCTION tds.gtrgm_union(internal, internal)
 RETURNS tds.gtrgm
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$gtrgm_union$function$;

CREATE OR REPLACE FUNCTION tds.set_limit(real)
 RETURNS real
 LANGUAGE c
 STRICT
AS '$libdir/pg_trgm', $function$set_limit$function$;

CREATE OR REPLACE FUNCTION tds.show_limit()
 RETURNS real
 LANGUAGE c
 STABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$show_limit$function$;

CREATE OR REPLACE FUNCTION tds.show_trgm(text)
 RETURNS text[]
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$show_trgm$function$;

CREATE OR REPLACE FUNCTION tds.similarity(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$similarity$function$;

CREATE OR REPLACE FUNCTION tds.similarity_dist(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$similarity_dist$function$;

CREATE OR REPLACE FUNCTION tds.similarity_op(text, text)
 RETURNS boolean
 LANGUAGE c
 STABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$similarity_op$function$;

CREATE OR REPLACE FUNCTION tds.strict_word_similarity(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$strict_word_similarity$function$;

CREATE OR REPLACE FUNCTION tds.strict_word_similarity_commutator_op(text, text)
 RETURNS boolean
 LANGUAGE c
 STABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$strict_word_similarity_commutator_op$function$;

CREATE OR REPLACE FUNCTION tds.strict_word_similarity_dist_commutator_op(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$strict_word_similarity_dist_commutator_op$function$;

CREATE OR REPLACE FUNCTION tds.strict_word_similarity_dist_op(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$strict_word_similarity_dist_op$function$;

CREATE OR REPLACE FUNCTION tds.strict_word_similarity_op(text, text)
 RETURNS boolean
 LANGUAGE c
 STABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$strict_word_similarity_op$function$;

CREATE OR REPLACE FUNCTION tds.word_similarity(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$word_similarity$function$;

CREATE OR REPLACE FUNCTION tds.word_similarity_commutator_op(text, text)
 RETURNS boolean
 LANGUAGE c
 STABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$word_similarity_commutator_op$function$;

CREATE OR REPLACE FUNCTION tds.word_similarity_dist_commutator_op(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$word_similarity_dist_commutator_op$function$;

CREATE OR REPLACE FUNCTION tds.word_similarity_dist_op(text, text)
 RETURNS real
 LANGUAGE c
 IMMUTABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$word_similarity_dist_op$function$;

CREATE OR REPLACE FUNCTION tds.word_similarity_op(text, text)
 RETURNS boolean
 LANGUAGE c
 STABLE PARALLEL SAFE STRICT
AS '$libdir/pg_trgm', $function$word_similarity_op$function$;

CREATE OR REPLACE FUNCTION tds.write_api_heartbeat(id text, has_stopped boolean)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
  IF id IS NULL OR has_stopped IS NULL OR id !~ '^[A-Za-z0-9._-]{1,255}:[0-9]{1,10}:[0-9a-f]{8}$' THEN
    RAISE EXCEPTION 'host:pid:random of a process and a boolean are required' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO tds.role_processes (role, process, stopped_at) VALUES ('api', id, CASE WHEN has_stopped THEN now() END)
  ON CONFLICT (role, process) DO UPDATE SET seen_at = now(), stopped_at = excluded.stopped_at;
  -- A caller cannot fill the table: a live process that is deleted returns with its next heartbeat.
  DELETE FROM tds.role_processes WHERE role = 'api' AND process IN (
    SELECT process FROM tds.role_processes WHERE role = 'api' ORDER BY seen_at DESC, process OFFSET 1000);
END $function$;
