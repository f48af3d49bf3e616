-- pause: stop or resume claims of a pool, or its submits. What runs goes on.
--
-- FLAGS allow-oom
-- USES base clock job
-- KEYS base
-- ARGV paused    1 | 0 | empty: as it is
-- ARGV draining  1 | 0 | empty: as it is
-- REPLY no_pool now
-- REPLY done now
local paused, draining = ARGV[1], ARGV[2]

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end

if paused ~= '' then redis.call('HSET', key('pool'), 'paused', paused) end
if draining ~= '' then redis.call('HSET', key('pool'), 'draining', draining) end
wake()
return { 'done', echo(now) }
