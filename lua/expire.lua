-- expire: the reaper's pass over one pool. Any number of reapers may run it; each moves at most `limit` of each kind.
--
-- FLAGS allow-oom
-- USES base clock job lapse take
-- KEYS base
-- ARGV deadline
-- ARGV limit
-- REPLY late now
-- REPLY no_pool now
-- REPLY expired now promoted lapsed overdue bodies records letters more
local deadline, limit = tonumber(ARGV[1]), tonumber(ARGV[2])

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end

local promoted = promote(P, limit)
local overdue = lapse_deadlines(P, limit)
local lapsed = lapse_leases(P, limit)

-- Ended jobs: first the bodies go, then the record.
local bodies, records, letters = 0, 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('ended'), '-inf', now, 'LIMIT', 0, limit)) do
  local record = redis.call('HMGET', key('job:' .. id), 'tenant', 'result_expired', 'ended_at')
  if record[1] and not record[2] and P.record_retention_ms > 0 then
    redis.call('DEL', key('envelope:' .. id), key('result:' .. id), key('events:' .. id))
    redis.call('HSET', key('job:' .. id), 'result_expired', '1')
    redis.call('ZADD', key('ended'), now + P.record_retention_ms, id)
    bodies = bodies + 1
  else
    forget(id, record[1] or '')
    records = records + 1
  end
end
local oldest = now - P.dead_letter_retention_ms
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('dead'), '-inf', oldest, 'LIMIT', 0, limit)) do
  forget(id, redis.call('HGET', key('job:' .. id), 'tenant') or '')
  letters = letters + 1
end
redis.call('ZREMRANGEBYSCORE', key('suspects'), '-inf', now)
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)
if P.paused == 0 and redis.call('ZCARD', key('leases')) < P.slots and any_ready() then wake() end
keep(P)
local most = math.max(promoted, overdue, lapsed, bodies + records, letters)
return { 'expired', echo(now), int(promoted), int(lapsed), int(overdue), int(bodies), int(records), int(letters),
  most >= limit and '1' or '0' }
