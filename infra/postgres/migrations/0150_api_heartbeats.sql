-- The database role of the API reads only. This function, which runs with the rights of the owner of the tables, lets it write
-- heartbeats of the role `api`, and nothing else.
CREATE FUNCTION tds.write_api_heartbeat(id text, has_stopped boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF id IS NULL OR has_stopped IS NULL OR id !~ '^[A-Za-z0-9._-]{1,255}:[0-9]{1,10}:[0-9a-f]{8}$' THEN
    RAISE EXCEPTION 'host:pid:random of a process and a boolean are required' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO tds.role_processes (role, process, stopped_at) VALUES ('api', id, CASE WHEN has_stopped THEN now() END)
  ON CONFLICT (role, process) DO UPDATE SET seen_at = now(), stopped_at = excluded.stopped_at;
  -- A caller cannot fill the table: a live process that is deleted returns with its next heartbeat.
  DELETE FROM tds.role_processes WHERE role = 'api' AND process IN (
    SELECT process FROM tds.role_processes WHERE role = 'api' ORDER BY seen_at DESC, process OFFSET 1000);
END $$;

-- `tds migrate` grants it to the role of API_DATABASE_URL.
REVOKE ALL ON FUNCTION tds.write_api_heartbeat(text, boolean) FROM PUBLIC;
