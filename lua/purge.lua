-- purge: remove one dead letter for good.
--
-- FLAGS allow-oom
-- USES base clock job
-- KEYS base
-- ARGV deadline
-- ARGV id
-- REPLY late now
-- REPLY no_pool now
-- REPLY purged now
-- REPLY not_dead now state
-- REPLY unknown now
local deadline, id = tonumber(ARGV[1]), ARGV[2]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end
local job = load_job(id)
if not job then return { 'unknown', echo(now) } end
if not redis.call('ZSCORE', key('dead'), id) then return { 'not_dead', echo(now), job.state } end

forget(id, job.tenant)
return { 'purged', echo(now) }
