-- holder: the job that an idempotency key belongs to in this pool.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- ARGV idempotency  digest of tenant and key
-- REPLY no_pool now
-- REPLY holder now id body_hash
-- REPLY unknown now
local idempotency = ARGV[1]

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end
local record = redis.call('GET', key('idempotency:' .. idempotency))
if not record then return { 'unknown', echo(now) } end
local id, body_hash = string.match(record, '^(%S+) (%S+)$')
if redis.call('EXISTS', key('job:' .. id)) == 0 then return { 'unknown', echo(now) } end
return { 'holder', echo(now), id, body_hash }
