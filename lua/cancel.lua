-- cancel: terminal at once where the job is not running, else marked for its worker, which is told.
--
-- FLAGS allow-oom
-- USES base clock job
-- KEYS base
-- ARGV deadline
-- ARGV id
-- ARGV tenant     the caller's, or empty for an operator
-- REPLY late now
-- REPLY no_pool now
-- REPLY cancelled now
-- REPLY cancelling now
-- REPLY already now state
-- REPLY unknown now
local deadline, id, tenant = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end
local job = load_job(id)
if not job or (tenant ~= '' and job.tenant ~= tenant) then return { 'unknown', echo(now) } end
if job.state == 'running' then
  keep(P)
  if not job.cancel then redis.call('HSET', key('job:' .. id), 'cancel', '1') end
  redis.call('PUBLISH', key('worker:' .. job.worker), id)
  return { 'cancelling', echo(now) }
end
if job.state ~= 'queued' and job.state ~= 'scheduled' then return { 'already', echo(now), job.state } end

finish(P, job, 'cancelled', { 'code', 'cancelled' })
keep(P)
return { 'cancelled', echo(now) }
