-- expire: the reaper's pass over one pool. Any number of reapers may run it; each moves at most `limit` of each kind.
--
-- A server that was restarted, or that took over, may lack the last writes of the one before: counters are rewound, and
-- workers hold deliveries that it never handed out. Where the lineage is another one a new epoch begins, with a grace:
-- living workers reconnect before any lease is taken from them. Nothing has to be repaired. A script's effects are
-- replicated and logged as one unit, so what is left is the pool as it was between two steps, its sets, records, owners
-- and counters in accord (`doctor` checks it); what only the lost server knew is refused by its owner's random bits.
--
-- FLAGS allow-oom
-- USES base clock job lapse take
-- KEYS base
-- ARGV deadline
-- ARGV limit
-- ARGV lineage  of the server, as the step `lineage` named it; empty: not known
-- REPLY late now
-- REPLY no_pool now
-- REPLY expired now promoted lapsed overdue bodies records letters more epoch began lost_from
local deadline, limit, lineage = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end

-- A reaper that is late with the lineage before is not heard. What was written up to `passed_at` was there when this
-- server began: nothing before it is lost.
local known = redis.call('HMGET', key('state'), 'lineage', 'lineage_before', 'epoch', 'passed_at', 'lost_from')
local epoch, lost_from, began = num(known[3]), num(known[5]), '0'
if lineage ~= '' and lineage ~= known[2] then
  if known[1] and known[1] ~= lineage then
    epoch, lost_from, began = epoch + 1, num(known[4]), '1'
    grace(P, math.min(P.lapsed, P.last))
    P.lapsed = P.grace_from
    redis.call('HSET', key('state'), 'lineage_before', known[1], 'epoch', epoch, 'lost_from', lost_from)
  end
  redis.call('HSET', key('state'), 'lineage', lineage, 'passed_at', now)
end

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
redis.call('ZREMRANGEBYSCORE', key('spent'), '-inf', '(' .. int(now))
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)
if P.paused == 0 and redis.call('ZCARD', key('leases')) < P.slots and any_ready() then wake() end
keep(P)
local most = math.max(promoted, overdue, lapsed, bodies + records, letters)
return { 'expired', echo(now), int(promoted), int(lapsed), int(overdue), int(bodies), int(records), int(letters),
  most >= limit and '1' or '0', int(epoch), began, int(lost_from) }
