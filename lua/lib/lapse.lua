-- lapse: what happens to jobs whose time is over. Bounded by `limit`; each returns how many it moved.
--
-- Blame. A worker that dies takes all its deliveries with it, and only one of them may be at fault. A job one lost lease
-- short of poison is a suspect: claim gives a worker one suspect at a time, and while a suspect is (or was, for one
-- lease) with a worker that worker's other jobs are not blamed for its death. A lease that lapsed because the store was
-- away is lost but nobody is to blame.

local function promote(P, limit)
  local ids = redis.call('ZRANGEBYSCORE', key('due'), '-inf', P.now, 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    local job = load_job(id)
    redis.call('ZREM', key('due'), id)
    if job then
      redis.call('HSET', key('job:' .. id), 'state', 'queued')
      ready(job)
    end
  end
  return #ids
end

local function is_suspect(P, job)
  return P.max_lost_leases > 1 and job.blame >= P.max_lost_leases - 1
end

-- The worker has its suspect no longer.
local function clear_suspect(P, job)
  if is_suspect(P, job) then redis.call('ZREM', key('suspects'), job.worker) end
end

local function lapse_lease(P, id, expiry)
  local job = load_job(id)
  if not job then return redis.call('ZREM', key('leases'), id) end -- a record that was lost must not stop the pool
  local suspect = is_suspect(P, job)
  local until_ms = num(redis.call('ZSCORE', key('suspects'), job.worker))
  job.lost = job.lost + 1
  local store_gap = expiry > P.grace_from and expiry <= P.grace_until
  if not store_gap and (suspect or until_ms <= P.now) then job.blame = job.blame + 1 end
  if suspect then redis.call('ZADD', key('suspects'), P.now + P.lease_ms, job.worker) end
  local field, entry = history(P, job, 'lost')
  local fields = { 'lost', job.lost, 'blame', job.blame, 'owner', '', field, entry }
  if job.cancel then
    fields[#fields + 1] = 'code'
    fields[#fields + 1] = 'cancelled'
    finish(P, job, 'cancelled', fields)
  elseif job.blame >= P.max_lost_leases then
    fields[#fields + 1] = 'code'
    fields[#fields + 1] = 'poison'
    finish(P, job, 'failed', fields, 'poison')
    redis.call('HINCRBY', key('state'), 'poisoned', 1)
  else
    leave(job)
    redis.call('HSET', key('job:' .. id), 'state', 'queued', unpack(fields))
    ready(job)
    hint(id)
  end
end

local function lapse_leases(P, limit)
  local rows = redis.call('ZRANGEBYSCORE', key('leases'), '-inf', P.lapsed, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #rows, 2 do lapse_lease(P, rows[i], tonumber(rows[i + 1])) end
  if #rows > 0 then redis.call('HINCRBY', key('state'), 'lapsed', #rows / 2) end
  return #rows / 2
end

-- Ends jobs whose deadline has come: expired where they waited, failed where they ran, cancelled where that was promised.
local function end_overdue(P, job)
  if job.state == 'running' then
    local cancelled = job.cancel
    local field, entry = history(P, job, cancelled and 'cancelled' or 'deadline')
    redis.call('PUBLISH', key('worker:' .. job.worker), job.id)
    clear_suspect(P, job)
    if cancelled then
      finish(P, job, 'cancelled', { 'code', 'cancelled', field, entry })
    else
      finish(P, job, 'failed', { 'code', 'deadline_exceeded', field, entry }, 'deadline')
    end
  else
    finish(P, job, 'expired', { 'code', 'deadline_exceeded' })
  end
end

local function lapse_deadlines(P, limit)
  local ids = redis.call('ZRANGEBYSCORE', key('deadlines'), '-inf', P.now, 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    local job = load_job(id)
    if job then end_overdue(P, job) else redis.call('ZREM', key('deadlines'), id) end
  end
  return #ids
end
