-- lineage: which history of writes the pool's server goes on with. Another name: writes may have been lost.
--
-- Each start of a server gives it a new `run_id`, whatever it loads. Its replication id is new then too, but also when its
-- first replica comes, and an hour after the last one left, where nothing is lost (Redis 7.0.15). A server that is made
-- primary again without a start has a second replication id: then the first is part of the name.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- REPLY no_pool now
-- REPLY lineage now name
local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end
local replication = redis.call('INFO', 'replication')
local name = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local second = string.match(replication, 'master_replid2:(%x+)')
if second and string.find(second, '[^0]') then
  name = name .. ':' .. string.match(replication, 'master_replid:(%x+)')
end
return { 'lineage', echo(now), name }
