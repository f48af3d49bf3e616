-- fetch: a part of a job's request or result, as it was stored.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- ARGV what   envelope | result
-- ARGV id
-- ARGV from   first byte, from 0
-- ARGV most   bytes; 0: only how many there are
-- REPLY no_pool now
-- REPLY kept now size data   size of the whole; 0: there is none, or it is gone
local what, id, from, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end
local whole = key(what .. ':' .. id)
local data = most > 0 and redis.call('GETRANGE', whole, int(from), int(from + most - 1)) or ''
return { 'kept', echo(now), int(redis.call('STRLEN', whole)), data }
