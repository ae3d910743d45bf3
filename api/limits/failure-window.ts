/**
 * Lua functions for a hash of failures, whose window (ms) begins with the first of them: `failuresOf` returns their number
 * and the milliseconds until the window ends, `countFailure` adds one.
 */
export const FAILURE_WINDOW = `
local function failuresOf(key, now, window)
  local began = tonumber(redis.call('HGET', key, 'began') or '')
  -- The clocks of processes differ a little; a beginning further in the future is from before a clock was set back.
  if not began or math.abs(now - began) >= window then return 0, 0 end
  return tonumber(redis.call('HGET', key, 'failures')), math.min(began + window - now, window)
end
local function countFailure(key, now, window)
  if failuresOf(key, now, window) == 0 then
    redis.call('DEL', key)
    redis.call('HSET', key, 'began', now)
    redis.call('PEXPIRE', key, window)
  end
  redis.call('HINCRBY', key, 'failures', 1)
end`;
