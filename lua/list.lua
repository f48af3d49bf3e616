-- list: a page of jobs, newest first, from the index of a tenant or of the whole pool.
--
-- The index is ordered by acceptance and a job keeps its place in it through every state, so a walk by cursor meets each
-- job once. Each call looks at no more than `scan` entries; a caller that filters goes on from `cursor`.
--
-- FLAGS no-writes
-- USES base clock
-- KEYS base
-- ARGV tenant   or empty for all
-- ARGV after    id of the last job seen, or empty
-- ARGV cursor   place to go on from, or empty; stands above `after`
-- ARGV state    or empty: any; `dead` for dead letters
-- ARGV class    or empty: any
-- ARGV limit    most jobs returned
-- ARGV scan     most entries looked at
-- REPLY no_pool now
-- REPLY unknown now
-- REPLY page now cursor job...   an empty cursor: that was the last entry; each job is its fields, `id` first
local tenant, after, cursor, state, class = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, scan = tonumber(ARGV[6]), tonumber(ARGV[7])

local P, now = look_pool()
if not P then return { 'no_pool', echo(now) } end
local top = '+inf'
if cursor ~= '' then
  top = '(' .. cursor
elseif after ~= '' then
  local job = redis.call('HMGET', key('job:' .. after), 'seq', 'tenant')
  if not job[1] or (tenant ~= '' and job[2] ~= tenant) then return { 'unknown', echo(now) } end
  top = '(' .. job[1]
end
local index = tenant == '' and key('jobs') or key('tenant:' .. tenant)
local rows = redis.call('ZREVRANGEBYSCORE', index, top, '-inf', 'WITHSCORES', 'LIMIT', 0, scan)
local reply = { 'page', echo(now), '' }
local last = #rows < 2 * scan
for i = 1, #rows, 2 do
  local job = redis.call('HMGET', key('job:' .. rows[i]), 'state', 'class', 'dead')
  local match = job[1] and (class == '' or job[2] == class)
  if state == 'dead' then match = match and job[3] elseif state ~= '' then match = match and job[1] == state end
  if match then
    local fields = redis.call('HGETALL', key('job:' .. rows[i]))
    reply[#reply + 1] = { 'id', rows[i], unpack(fields) }
  end
  reply[3] = int(tonumber(rows[i + 1]))
  if #reply - 3 >= limit then
    last = last and i + 1 >= #rows
    break
  end
end
if last then reply[3] = '' end
return reply
