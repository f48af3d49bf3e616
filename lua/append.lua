-- append: publish a piece of a delivery's stream to those who read along.
--
-- Entry ids are <fence>-<n>, so they rise over deliveries. The oldest pieces make room beyond `max_bytes`; the
-- newest always stays, for it tells a piece sent again from a new one.
--
-- FLAGS
-- USES base clock
-- KEYS base
-- ARGV deadline
-- ARGV id
-- ARGV fence
-- ARGV owner
-- ARGV first      number of this piece within the delivery, from 1: the same piece again is stored once
-- ARGV max_bytes  kept per job
-- ARGV pieces...
-- REPLY late now
-- REPLY no_pool now
-- REPLY appended now
-- REPLY lost now
local deadline, id, fence, owner = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local first, max_bytes = tonumber(ARGV[5]), tonumber(ARGV[6])

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end
local job = redis.call('HMGET', key('job:' .. id), 'owner', 'fence', 'events_bytes')
local expiry = num(redis.call('ZSCORE', key('leases'), id))
if job[1] ~= owner or job[2] ~= fence or expiry <= P.lapsed then return { 'lost', echo(now) } end

keep(P)
local events = key('events:' .. id)
local last = redis.call('XREVRANGE', events, '+', '-', 'COUNT', 1)
local last_n = 0
if last[1] then
  local f, n = string.match(last[1][1], '^(%d+)%-(%d+)$')
  if f == fence then last_n = tonumber(n) end
end
local bytes = num(job[3])
for i = 7, #ARGV do
  local n = first + i - 7
  if n > last_n then
    redis.call('XADD', events, fence .. '-' .. int(n), 'data', ARGV[i])
    bytes = bytes + #ARGV[i]
  end
end
while bytes > max_bytes do
  local oldest, newer = unpack(redis.call('XRANGE', events, '-', '+', 'COUNT', 2))
  if not newer then break end
  redis.call('XDEL', events, oldest[1])
  bytes = bytes - #oldest[2][2]
end
redis.call('HSET', key('job:' .. id), 'events_bytes', bytes)
redis.call('PUBLISH', key('job:' .. id), 'chunk')
return { 'appended', echo(now) }
