-- read: one job as it is now, with what a waiting one waits for.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- ARGV id
-- ARGV tenant   the reader's, or empty for an operator
-- REPLY no_pool now
-- REPLY unknown now
-- REPLY job now position pending_reason gap_ms field value...
local id, tenant = ARGV[1], ARGV[2]

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end
local job = redis.call('HGETALL', key('job:' .. id))
if #job == 0 then return { 'unknown', echo(now) } end
local fields = {}
for i = 1, #job, 2 do fields[job[i]] = job[i + 1] end
if tenant ~= '' and fields.tenant ~= tenant then return { 'unknown', echo(now) } end

local position, reason = '', ''
if fields.state == 'queued' then
  local ahead = 0
  for priority = num(fields.priority) + 1, 9 do ahead = ahead + redis.call('ZCARD', key('ready:' .. int(priority))) end
  position = int(ahead + num(redis.call('ZRANK', key('ready:' .. fields.priority), id)))
  if P.paused == 1 then
    reason = 'paused'
  elseif redis.call('ZCOUNT', key('workers'), '(' .. int(now), '+inf') == 0 then
    reason = 'no_worker'
  else
    reason = 'slots'
  end
elseif fields.state == 'scheduled' then
  reason = fields.backoff and 'backoff' or 'not_due'
end
return { 'job', echo(now), position, reason, P.gaps >= 3 and int(P.gap_ms) or '', unpack(job) }
