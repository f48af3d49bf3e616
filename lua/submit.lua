-- submit: accept one job, or say why not.
--
-- FLAGS
-- USES base clock job
-- KEYS base         the pool's prefix, tg<schema>:{<pool>}
-- ARGV deadline     ms of the pool's clock; later than it the step refuses
-- ARGV id           minted by the caller; the same id again is the same submit
-- ARGV tenant
-- ARGV class
-- ARGV priority     0..9, higher first
-- ARGV delay_ms     0: at once
-- ARGV deadline_ms  from acceptance; 0: none
-- ARGV timeout_ms   for one delivery; 0: the pool's
-- ARGV max_attempts
-- ARGV model
-- ARGV bytes        what the job counts for against max_queued_bytes
-- ARGV idempotency  digest of tenant and key, or empty
-- ARGV body_hash    digest of the request
-- ARGV envelope     MessagePack, never decoded here
-- REPLY late now
-- REPLY no_pool now
-- REPLY accepted now id
-- REPLY duplicate now id
-- REPLY conflict now id
-- REPLY draining now
-- REPLY full now limit value retry_after_ms
-- REPLY unsatisfiable now limit value
local deadline, id, tenant, class, priority = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local delay_ms, deadline_ms, timeout_ms = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local max_attempts, model, bytes = tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11])
local idempotency, body_hash, envelope = ARGV[12], ARGV[13], ARGV[14]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end
if redis.call('EXISTS', key('job:' .. id)) == 1 then return { 'duplicate', echo(now), id } end

local record = idempotency ~= '' and redis.call('GET', key('idempotency:' .. idempotency))
if record then
  local earlier, hash = string.match(record, '^(%S+) (%S+)$')
  if redis.call('EXISTS', key('job:' .. earlier)) == 1 then
    return { hash == body_hash and 'duplicate' or 'conflict', echo(now), earlier }
  end
end

if P.draining == 1 then return { 'draining', echo(now) } end
if bytes > P.max_queued_bytes then
  return { 'unsatisfiable', echo(now), 'max_queued_bytes', int(P.max_queued_bytes) }
end
local retry_after_ms = P.gaps >= 3 and int(P.gap_ms) or ''
if redis.call('ZCARD', key('jobs')) >= P.max_queued and owed() >= P.max_queued then
  return { 'full', echo(now), 'max_queued', int(P.max_queued), retry_after_ms }
end
if P.bytes + bytes > P.max_queued_bytes then
  return { 'full', echo(now), 'max_queued_bytes', int(P.max_queued_bytes), retry_after_ms }
end

P.seq, P.bytes = P.seq + 1, P.bytes + bytes
keep(P)
local seq = P.seq
local fields = { 'state', delay_ms > 0 and 'scheduled' or 'queued', 'tenant', tenant, 'class', class, 'priority',
  priority, 'seq', seq, 'created_at', now, 'max_attempts', max_attempts, 'bytes', bytes }
local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
if model ~= '' then set('model', model) end
if timeout_ms > 0 then set('timeout_ms', timeout_ms) end
if delay_ms > 0 then set('due_at', now + delay_ms) end
if deadline_ms > 0 then set('deadline_at', now + deadline_ms) end
redis.call('HSET', key('job:' .. id), unpack(fields))
redis.call('SET', key('envelope:' .. id), envelope)
redis.call('ZADD', key('jobs'), seq, id)
redis.call('ZADD', key('tenant:' .. tenant), seq, id)
if deadline_ms > 0 then redis.call('ZADD', key('deadlines'), now + deadline_ms, id) end
if delay_ms > 0 then
  redis.call('ZADD', key('due'), now + delay_ms, id)
else
  ready({ id = id, priority = priority, order = seq })
end
if idempotency ~= '' and P.idempotency_ms > 0 then
  redis.call('SET', key('idempotency:' .. idempotency), id .. ' ' .. body_hash, 'PX', P.idempotency_ms)
end
wake()
return { 'accepted', echo(now), id }
