-- apply: the settings of a pool, by a version that only rises. Running work is not touched; a smaller number of slots is
-- reached as leases end.
--
-- FLAGS
-- USES base
-- KEYS base
-- ARGV def        the definition as JSON, as shown to operators
-- ARGV settings...  name, value pairs that the steps read
-- REPLY unchanged version
-- REPLY applied version
local def = ARGV[1]

if redis.call('HGET', key('pool'), 'def') == def then
  return { 'unchanged', echo(num(redis.call('HGET', key('pool'), 'version'))) }
end
local fields = { 'def', def }
for i = 2, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', key('pool'), unpack(fields))
local version = redis.call('HINCRBY', key('pool'), 'version', 1)
redis.call('ZADD', key('marker'), 0, 'work')
return { 'applied', echo(version) }
