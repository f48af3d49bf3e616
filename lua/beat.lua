-- beat: a worker says that it is here. It is forgotten one lease after its last word.
--
-- FLAGS allow-oom
-- USES base clock
-- KEYS base
-- ARGV worker  id of the process life
-- ARGV gone    1: it leaves
-- ARGV info    JSON, as shown to operators
-- REPLY no_pool now
-- REPLY beaten now
local worker, gone, info = ARGV[1], ARGV[2], ARGV[3]

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end

keep(P)
if gone == '1' then
  redis.call('ZREM', key('workers'), worker)
  redis.call('DEL', key('worker:' .. worker))
else
  redis.call('ZADD', key('workers'), now + P.lease_ms, worker)
  redis.call('SET', key('worker:' .. worker), info, 'PX', 2 * P.lease_ms)
end
return { 'beaten', echo(now) }
