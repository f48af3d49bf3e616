-- requeue: a dead letter starts a new life. Its fence goes on rising, attempts and losses start at 0, history stays.
--
-- FLAGS
-- USES base clock job
-- KEYS base
-- ARGV deadline
-- ARGV id
-- ARGV operation  minted by the caller, without spaces: the same requeue sent again is `requeued` again
-- REPLY late now
-- REPLY no_pool now
-- REPLY requeued now
-- REPLY not_dead now state
-- REPLY full now limit value
-- REPLY unknown now
local REMEMBERED = 8 -- requeues of a job; a copy of one comes within seconds, and a life takes longer than a step

local deadline, id, operation = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end
local job = load_job(id)
if not job then return { 'unknown', echo(now) } end
local earlier = redis.call('HMGET', key('job:' .. id), 'requeued_by', 'requeued_at')
local operations = {}
for done in string.gmatch(earlier[1] or '', '%S+') do
  if done == operation then return { 'requeued', echo(now) } end
  operations[#operations + 1] = done
end
if not redis.call('ZSCORE', key('dead'), id) then return { 'not_dead', echo(now), job.state } end
if owed() >= P.max_queued then return { 'full', echo(now), 'max_queued', int(P.max_queued) } end
if P.bytes + job.bytes > P.max_queued_bytes then
  return { 'full', echo(now), 'max_queued_bytes', int(P.max_queued_bytes) }
end

P.seq, P.bytes = P.seq + 1, P.bytes + job.bytes
keep(P)
local order = P.seq
operations[#operations + 1] = operation
if #operations > REMEMBERED then table.remove(operations, 1) end
redis.call('ZREM', key('dead'), id)
redis.call('HDEL', key('job:' .. id), 'dead', 'code', 'error', 'ended_at', 'cancel', 'backoff', 'due_at', 'attempts',
  'lost', 'blame', 'stops', 'input_tokens', 'output_tokens', 'estimated', 'settled_by', 'progress')
redis.call('HSET', key('job:' .. id), 'state', 'queued', 'order', order, 'requeued_by',
  table.concat(operations, ' '), 'requeued_at', now)
redis.call('HINCRBY', key('job:' .. id), 'lives', 1)
if job.deadline_at > 0 then
  local began_at = earlier[2] and num(earlier[2]) or job.created_at
  local deadline_at = now + job.deadline_at - began_at
  redis.call('HSET', key('job:' .. id), 'deadline_at', deadline_at)
  redis.call('ZADD', key('deadlines'), deadline_at, id)
end
redis.call('PERSIST', key('job:' .. id))
redis.call('PERSIST', key('envelope:' .. id))
redis.call('DEL', key('events:' .. id))
redis.call('HDEL', key('job:' .. id), 'events_bytes')
job.order = order
ready(job)
hint(id)
wake()
return { 'requeued', echo(now) }
