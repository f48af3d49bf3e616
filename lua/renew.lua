-- renew: extend the leases of many deliveries at once.
--
-- A lease that lapsed is not brought back. A delivery is not renewed for ever: one lease past its run's time-out it is
-- left to lapse, so that a wedged worker holds a slot no longer than that.
--
-- FLAGS allow-oom
-- USES base clock job
-- KEYS base
-- ARGV deadline
-- ARGV default_timeout_ms  run's time-out of a job without its own
-- ARGV deliveries...       id, fence, owner, output tokens so far; four for each
-- REPLY late now
-- REPLY no_pool now
-- REPLY renewed now status...   for each: `ok`, `follow` (ok, and somebody reads along), `cancel` or `lost`
local deadline, default_timeout_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end

keep(P)
local reply = { 'renewed', echo(now) }
for i = 3, #ARGV, 4 do
  local id, fence, owner, output_tokens = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local job = redis.call('HMGET', key('job:' .. id), 'owner', 'fence', 'cancel', 'follow', 'claimed_at', 'timeout_ms')
  local expiry = num(redis.call('ZSCORE', key('leases'), id))
  local status = 'lost'
  if job[1] == owner and job[2] == fence and expiry > P.lapsed then
    local timeout_ms = num(job[6])
    if timeout_ms == 0 then timeout_ms = default_timeout_ms end
    local last = num(job[5]) + timeout_ms + P.lease_ms
    redis.call('ZADD', key('leases'), math.max(expiry, math.min(now + P.lease_ms, last)), id)
    if num(output_tokens) > 0 then redis.call('HSET', key('job:' .. id), 'progress', output_tokens) end
    status = (job[3] and 'cancel') or (job[4] and 'follow') or 'ok'
  end
  reply[#reply + 1] = status
end
return reply
