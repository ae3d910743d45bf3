-- Encrypted blobs of wallets, one a lookup hash: what they hold is nobody's here to know.
CREATE TABLE {{schema}}.sync_blobs (
  lookup_hash   text PRIMARY KEY,
  version       bigint NOT NULL,
  blob          text NOT NULL,
  -- Sealed under SECRET_KEY; the key is taken at the first PUT only.
  auth_key      text NOT NULL,
  -- The command that brought the key: a signature that was checked with another key is not this blob's.
  key_command   text NOT NULL,
  -- Unix milliseconds of the command.
  last_modified bigint NOT NULL
);
