-- Trigrams make searches for a part of a name fast. They are optional: a server may lack the extension, or not permit us
-- to create it.
DO $$
BEGIN
  CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA tds;
EXCEPTION
  WHEN feature_not_supported OR undefined_file OR insufficient_privilege THEN
    RAISE NOTICE 'pg_trgm is not available: %', SQLERRM;
END
$$;
