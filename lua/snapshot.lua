-- snapshot: counts of one pool, for scaling, metrics and operators. Every number is read from the sets themselves.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- REPLY no_pool now
-- REPLY snapshot now field value...
local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end

local queued, oldest = 0, now
for _, level in ipairs(redis.call('ZRANGE', key('levels'), 0, -1)) do
  local line = key('ready:' .. level)
  queued = queued + redis.call('ZCARD', line)
  local first = redis.call('ZRANGE', line, 0, 0)[1]
  if first then oldest = math.min(oldest, num(redis.call('HGET', key('job:' .. first), 'created_at'))) end
end
local rest = redis.call('HMGET', key('pool'), 'def', 'draining')
local state = redis.call('HMGET', key('state'), 'evicted', 'poisoned', 'lapsed')
local due = redis.call('ZCOUNT', key('due'), '-inf', int(now + P.demand_horizon_ms))
return { 'snapshot', echo(now),
  'version', int(P.version), 'def', rest[1] or '', 'paused', int(P.paused), 'draining', rest[2] or '0',
  'slots', int(P.slots), 'slots_used', int(redis.call('ZCARD', key('leases'))),
  'queued', int(queued), 'scheduled', int(redis.call('ZCARD', key('due'))), 'scheduled_due', int(due),
  'dead', int(redis.call('ZCARD', key('dead'))), 'ended', int(redis.call('ZCARD', key('ended'))),
  'jobs', int(redis.call('ZCARD', key('jobs'))), 'owed_bytes', int(P.bytes),
  'oldest_age_ms', int(math.max(now - oldest, 0)),
  'workers', int(redis.call('ZCOUNT', key('workers'), '(' .. int(now), '+inf')),
  'evicted', int(num(state[1])), 'poisoned', int(num(state[2])), 'lapsed', int(num(state[3])),
  'gap_ms', P.gaps >= 3 and int(P.gap_ms) or '' }
