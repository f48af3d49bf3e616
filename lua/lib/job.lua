-- job: where a job is kept, and the moves between those places.
--
-- A job is in exactly one place: ready:<priority>, due, leases, dead or ended. `owed` is everything not terminal.

local LAST_PRIORITY = 9
local HISTORY = 20             -- deliveries kept in the record
local BACKSTOP_MS = 604800000  -- a week, added to each TTL: the reaper removes index and record together, a TTL what it missed
local EVENTS_KEPT_MS = 600000  -- a stream stays readable for 10 minutes after the terminal

local JOB = {
  'state', 'tenant', 'priority', 'seq', 'order', 'bytes', 'deadline_at', 'fence', 'owner', 'worker', 'claimed_at',
  'attempts', 'max_attempts', 'lost', 'blame', 'stops', 'cancel', 'created_at', 'settled_by', 'timeout_ms', 'class',
  'follow', 'model', 'events_bytes',
}
local NUMBERS = {
  'priority', 'seq', 'order', 'bytes', 'deadline_at', 'fence', 'claimed_at', 'attempts', 'max_attempts', 'lost',
  'blame', 'stops', 'created_at', 'timeout_ms',
}

-- Reads what the moves need. Nil where there is no such job.
local function load_job(id)
  local values = redis.call('HMGET', key('job:' .. id), unpack(JOB))
  if not values[1] then return nil end
  local job = { id = id }
  for i = 1, #JOB do job[JOB[i]] = values[i] end
  for i = 1, #NUMBERS do job[NUMBERS[i]] = tonumber(job[NUMBERS[i]]) or 0 end
  if job.order == 0 then job.order = job.seq end
  return job
end

local function owed()
  return redis.call('ZCARD', key('jobs')) - redis.call('ZCARD', key('ended')) - redis.call('ZCARD', key('dead'))
end

-- One waiting worker is woken: the marker is taken by one blocking pop, and a claim that leaves work behind sets it again.
local function wake()
  redis.call('ZADD', key('marker'), 0, 'work')
end

-- Tells those who wait for the job that it changed. A hint: the record is the truth.
local function hint(id)
  redis.call('PUBLISH', key('job:' .. id), 'changed')
end

local function ready(job)
  redis.call('ZADD', key('ready:' .. int(job.priority)), job.order, job.id)
  redis.call('ZADD', key('levels'), LAST_PRIORITY - job.priority, job.priority)
end

-- Takes the job out of the place it is kept in.
local function leave(job)
  if job.state == 'queued' then
    redis.call('ZREM', key('ready:' .. int(job.priority)), job.id)
  elseif job.state == 'scheduled' then
    redis.call('ZREM', key('due'), job.id)
  elseif job.state == 'running' then
    redis.call('ZREM', key('leases'), job.id)
    redis.call('HDEL', key('owners'), job.owner)
  end
end

-- The record of a delivery that ended now.
local function history(P, job, outcome)
  return 'd' .. int(job.fence), table.concat({ job.worker, int(job.claimed_at), int(P.now), outcome }, ' ')
end

-- Removes the job and everything that lives with it.
local function forget(id, tenant)
  redis.call('DEL', key('job:' .. id), key('envelope:' .. id), key('result:' .. id), key('events:' .. id))
  redis.call('ZREM', key('jobs'), id)
  redis.call('ZREM', key('tenant:' .. tenant), id)
  redis.call('ZREM', key('ended'), id)
  redis.call('ZREM', key('dead'), id)
  redis.call('ZREM', key('deadlines'), id)
end

-- Dead letters are bounded: the oldest makes room, counted.
local function evict_dead(P)
  local over = redis.call('ZCARD', key('dead')) - P.max_dead_letters
  if over <= 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', key('dead'), 0, math.min(over, 100) - 1)) do
    forget(id, redis.call('HGET', key('job:' .. id), 'tenant') or '')
    redis.call('HINCRBY', key('state'), 'evicted', 1)
  end
end

-- The one way to a terminal. `fields` are further fields of the record; `dead` is the reason of a dead letter, or nil.
local function finish(P, job, status, fields, dead)
  local id = job.id
  leave(job)
  local record = { 'state', status, 'ended_at', P.now, 'owner', '' }
  for _, v in ipairs(fields) do record[#record + 1] = v end
  if dead then
    record[#record + 1] = 'dead'
    record[#record + 1] = dead
  end
  redis.call('HSET', key('job:' .. id), unpack(record))
  P.bytes = P.bytes - job.bytes
  if job.deadline_at > 0 then redis.call('ZREM', key('deadlines'), id) end
  local body_ms, record_ms = P.result_retention_ms, P.record_retention_ms
  if dead then
    body_ms, record_ms = P.dead_letter_retention_ms, 0
    redis.call('ZADD', key('dead'), P.now, id)
  else
    redis.call('ZADD', key('ended'), P.now + body_ms, id)
  end
  redis.call('PEXPIRE', key('envelope:' .. id), body_ms + BACKSTOP_MS)
  redis.call('PEXPIRE', key('job:' .. id), body_ms + record_ms + BACKSTOP_MS)
  if job.events_bytes then redis.call('PEXPIRE', key('events:' .. id), EVENTS_KEPT_MS) end
  hint(id)
  if dead then evict_dead(P) end
end
