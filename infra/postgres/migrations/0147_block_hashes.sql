-- Starknet versions of which a block of this chain was found whose hash is that of its header. From then on a block of the
-- version that does not match is refused; before, the chain may make up its hashes, or compute them in another way.
ALTER TABLE tds.chain ADD COLUMN hashed_versions text[] NOT NULL DEFAULT '{}';
