-- inspect: raw facts for `doctor`, a bounded piece at a time. Nothing is judged here.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- ARGV index    jobs | leases | due | dead | ended | deadlines | ready:<p> | levels | tenant:<t> | owners | job:<id>
-- ARGV start    rank of the first entry (the owners are given all at once: they are as many as leases)
-- ARGV count
-- REPLY no_pool now
-- REPLY facts now lapsed size fact...  each: id, score, where (sets the job is in), owner's entry, has envelope, fields...
local index, start, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end
local rows, size
if index == 'owners' then
  rows = {}
  local all = redis.call('HGETALL', key('owners'))
  size = #all / 2
  for i = 1, #all, 2 do
    rows[#rows + 1] = all[i + 1]
    rows[#rows + 1] = all[i]
  end
elseif string.sub(index, 1, 4) == 'job:' then
  rows, size = { string.sub(index, 5), '' }, 1
else
  rows = redis.call('ZRANGE', key(index), start, start + count - 1, 'WITHSCORES')
  size = redis.call('ZCARD', key(index))
end
local reply = { 'facts', echo(now), int(P.lapsed), int(size) }
for i = 1, #rows, 2 do
  local id = rows[i]
  local where = {}
  for _, set in ipairs({ 'jobs', 'leases', 'due', 'dead', 'ended', 'deadlines' }) do
    if redis.call('ZSCORE', key(set), id) then where[#where + 1] = set end
  end
  for priority = 0, 9 do
    if redis.call('ZSCORE', key('ready:' .. priority), id) then where[#where + 1] = 'ready:' .. priority end
  end
  local fields = redis.call('HGETALL', key('job:' .. id))
  local owner, tenant = redis.call('HGET', key('job:' .. id), 'owner'), redis.call('HGET', key('job:' .. id), 'tenant')
  if tenant and redis.call('ZSCORE', key('tenant:' .. tenant), id) then where[#where + 1] = 'tenant' end
  local owned = owner and owner ~= '' and redis.call('HGET', key('owners'), owner) or ''
  reply[#reply + 1] = { id, rows[i + 1], table.concat(where, ' '), owned,
    redis.call('EXISTS', key('envelope:' .. id)) == 1 and '1' or '0',
    int(redis.call('PTTL', key('job:' .. id))), unpack(fields) }
end
return reply
