-- follow: somebody reads along; the delivery that runs, and those to come, publish their stream.
--
-- FLAGS
-- USES base clock
-- KEYS base
-- ARGV deadline
-- ARGV id
-- ARGV tenant    the reader's, or empty for an operator
-- REPLY late now
-- REPLY no_pool now
-- REPLY following now state
-- REPLY unknown now
local deadline, id, tenant = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end
local job = redis.call('HMGET', key('job:' .. id), 'state', 'tenant', 'worker', 'follow', 'ended_at')
if not job[1] or (tenant ~= '' and job[2] ~= tenant) then return { 'unknown', echo(now) } end

if not job[4] and not job[5] then
  redis.call('HSET', key('job:' .. id), 'follow', '1')
  if job[1] == 'running' then redis.call('PUBLISH', key('worker:' .. job[3]), id) end
end
return { 'following', echo(now), job[1] }
