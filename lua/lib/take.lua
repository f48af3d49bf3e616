-- take: choose waiting jobs and hand each to a worker under a lease.
--
-- Order is exact: priority, then acceptance. `ready:<p>` is scored by acceptance alone and `levels` names the priorities
-- that may have work. Admission by class, tenant and tokens has its place in `admissible`.

local SCAN = 256       -- jobs looked at in one line beyond those taken: a crashed worker's suspects must not hide all others
local PAGE = 16        -- of them at a time, beyond those wanted
local CLAIM_BYTES = 8388608 -- of requests in one reply beyond the first: a reply must arrive well within the lease
local SWEEP = 20       -- lapsed leases and due jobs moved by one claim

local function delivery_reply(job, expiry)
  return { job.id, int(job.fence), job.owner, int(expiry), int(job.attempts), int(job.max_attempts), job.tenant,
    job.class or '', int(job.created_at), int(job.deadline_at), int(job.timeout_ms), job.follow or '', job.model or '',
    redis.call('GET', key('envelope:' .. job.id)) or '' }
end

-- Mints the fence, writes the owner, takes the slot: the lease is all of it.
local function deliver(P, job, worker, owner, deadline)
  local expiry = P.now + P.lease_ms
  leave(job)
  job.fence = job.fence + 1
  job.owner, job.worker, job.claimed_at, job.state = owner, worker, P.now, 'running'
  local fields = { 'state', 'running', 'fence', job.fence, 'owner', owner, 'worker', worker, 'claimed_at',
    int(P.now), 'd' .. int(job.fence), worker .. ' ' .. int(P.now) }
  if job.fence == 1 then
    fields[#fields + 1] = 'started_at'
    fields[#fields + 1] = P.now
  end
  redis.call('HSET', key('job:' .. job.id), unpack(fields))
  if job.fence > HISTORY then redis.call('HDEL', key('job:' .. job.id), 'd' .. int(job.fence - HISTORY)) end
  redis.call('ZADD', key('leases'), expiry, job.id)
  redis.call('HSET', key('owners'), owner, job.id)
  redis.call('ZADD', key('spent'), deadline, owner)
  if is_suspect(P, job) then redis.call('ZADD', key('suspects'), '9007199254740991', worker) end
  hint(job.id)
  return delivery_reply(job, expiry)
end

-- Whether this worker may have the job now.
local function admissible(P, job, worker)
  if not is_suspect(P, job) then return true end
  return num(redis.call('ZSCORE', key('suspects'), worker)) <= P.now
end

-- Takes up to `want` jobs in order; `owners` has one for each. Also returns whether it left one in the last line it saw.
local function choose(P, worker, owners, want, deadline)
  local taken, bytes = {}, 0
  local levels = redis.call('ZRANGE', key('levels'), 0, -1)
  for _, level in ipairs(levels) do
    local line = key('ready:' .. level)
    local left, passed = want - #taken + SCAN, 0 -- to look at; and what stays in the line before the next page
    repeat
      local most = math.min(want - #taken + PAGE, left)
      local ids = redis.call('ZRANGE', line, passed, passed + most - 1)
      if #ids == 0 and passed == 0 then redis.call('ZREM', key('levels'), level) end
      left = left - #ids
      for _, id in ipairs(ids) do
        if #taken >= want then return taken, true end
        local job = load_job(id)
        if not job then
          redis.call('ZREM', line, id)
        elseif job.deadline_at > 0 and job.deadline_at <= P.now then
          end_overdue(P, job)
        elseif not admissible(P, job, worker) then
          passed = passed + 1
        elseif #taken > 0 and bytes + job.bytes > CLAIM_BYTES then
          return taken, true
        else
          taken[#taken + 1] = deliver(P, job, worker, owners[#taken + 1], deadline)
          bytes = bytes + job.bytes
        end
      end
    until #ids < most or left == 0
  end
  return taken, false
end

local function any_ready()
  for _, level in ipairs(redis.call('ZRANGE', key('levels'), 0, -1)) do
    if redis.call('EXISTS', key('ready:' .. level)) == 1 then return true end
  end
  return false
end

-- One claim, whose command may run until `deadline`. Returns the deliveries, and where there are none the reason and when
-- the next job is due.
--
-- An owner is good for one delivery. `spent` remembers each until no copy of its claim can run any more: one that was
-- held up on the way must not be handed a job that nobody waits for.
local function take(P, worker, owners, deadline)
  local replay, fresh = {}, {}
  for _, owner in ipairs(owners) do
    local id = redis.call('HGET', key('owners'), owner)
    if id then
      redis.call('ZADD', key('spent'), 'GT', deadline, owner)
      local expiry = num(redis.call('ZSCORE', key('leases'), id))
      if expiry > P.lapsed then replay[#replay + 1] = delivery_reply(load_job(id), expiry) end
    elseif not redis.call('ZSCORE', key('spent'), owner) then
      fresh[#fresh + 1] = owner
    end
  end
  if #replay > 0 then return replay end
  promote(P, SWEEP)
  lapse_leases(P, SWEEP)
  local free = P.slots - redis.call('ZCARD', key('leases'))
  local taken, reason = {}, 'empty'
  if P.paused == 1 then
    reason = 'paused'
  elseif free <= 0 then
    reason = 'slots'
  else
    local left
    taken, left = choose(P, worker, fresh, math.min(free, #fresh), deadline)
    -- One that took nothing wakes nobody: where only suspects wait, idle workers would wake each other without end.
    if #taken > 0 and #taken < free and (left or any_ready()) then wake() end
  end
  if #taken > 0 then return taken end
  local due = redis.call('ZRANGE', key('due'), 0, 0, 'WITHSCORES')
  return taken, reason, due[2] or ''
end
