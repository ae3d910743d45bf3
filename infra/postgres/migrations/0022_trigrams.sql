-- Trigrams make searching names for a part of them fast. Everything works without, so a server that does not have the
-- extension, or does not let us make it, is no error.
DO $$
BEGIN
  CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA tds;
EXCEPTION
  WHEN feature_not_supported OR undefined_file OR insufficient_privilege THEN
    RAISE NOTICE 'pg_trgm is not available: %', SQLERRM;
END
$$;
