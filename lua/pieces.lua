-- pieces: what was published of a job's stream, in order.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- ARGV id
-- ARGV after  id of the last piece seen, or empty
-- ARGV count  most pieces returned
-- REPLY no_pool now
-- REPLY pieces now piece...   each: id, data
local id, after, count = ARGV[1], ARGV[2], ARGV[3]

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end
local first = after == '' and '-' or '(' .. after
local reply = { 'pieces', echo(now) }
for _, entry in ipairs(redis.call('XRANGE', key('events:' .. id), first, '+', 'COUNT', count)) do
  reply[#reply + 1] = { entry[1], entry[2][2] }
end
return reply
