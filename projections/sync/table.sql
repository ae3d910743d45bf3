-- Encrypted blobs of wallets, one for each lookup hash. The service cannot decrypt them.
CREATE TABLE {{schema}}.sync_blobs (
  lookup_hash   text PRIMARY KEY,
  version       bigint NOT NULL,
  blob          text NOT NULL,
  -- Sealed under SECRET_KEY; the key is taken at the first PUT only.
  auth_key      text NOT NULL,
  -- The command that set the key: a signature checked with another key is not valid for this blob.
  key_command   text NOT NULL,
  -- Unix milliseconds of the command.
  last_modified bigint NOT NULL
);
