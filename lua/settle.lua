-- settle: close one delivery and free what it holds; may take the next job in the same trip.
--
-- Succeed, fail, dead and retry each spend an attempt, release spends none. A cancel that came first wins whatever the
-- verdict. The same settle sent again is `duplicate`, and its claim gets the same delivery.
--
-- FLAGS allow-oom
-- USES base clock job lapse take
-- KEYS base
-- ARGV deadline
-- ARGV id
-- ARGV fence
-- ARGV owner
-- ARGV verdict        succeed | fail | dead | retry | release
-- ARGV delay_ms       retry: how long the job backs off
-- ARGV reason         dead letter's reason: of `dead`, and of `retry` where no attempt remains
-- ARGV code           error code, or empty
-- ARGV error          the error as JSON, or empty
-- ARGV input_tokens   -1: unknown
-- ARGV output_tokens  -1: unknown
-- ARGV estimated      1: the usage is an estimate
-- ARGV content_type   of the result
-- ARGV result         the model's body, or empty
-- ARGV worker         id of the worker that wants a next job, or empty
-- ARGV next_owner     owner of that next delivery, or empty
-- REPLY late now
-- REPLY no_pool now
-- REPLY settled now status reason next...
-- REPLY cancelled now status reason next...
-- REPLY duplicate now status reason next...
-- REPLY lost now status reason next...
local LONGEST_GAP_MS = 60000 -- a longer one is a pause, not the pool's pace; Retry-After ends there too

local deadline, id, fence, owner, verdict = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local delay_ms, reason, code, err = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local input_tokens, output_tokens, estimated = ARGV[10], ARGV[11], ARGV[12]
local content_type, result = ARGV[13], ARGV[14]
local worker, next_owner = ARGV[15], ARGV[16]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end

local tag, status, why = 'lost', '', ''
local job = load_job(id)
if job then status = job.state end
local expiry = num(redis.call('ZSCORE', key('leases'), id))
local current = job and job.state == 'running' and job.owner == owner and int(job.fence) == fence
if current and expiry > P.lapsed then
  tag = job.cancel and 'cancelled' or 'settled'
elseif job and job.settled_by == owner then
  tag = 'duplicate'
end

if tag == 'settled' or tag == 'cancelled' then
  local field, entry = history(P, job, tag == 'cancelled' and 'cancelled' or verdict)
  local fields = { 'settled_by', owner, field, entry }
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local function usage()
    if input_tokens ~= '-1' then set('input_tokens', input_tokens) end
    if output_tokens ~= '-1' then set('output_tokens', output_tokens) end
    if estimated == '1' then set('estimated', '1') end
  end
  if verdict ~= 'release' then
    job.attempts = job.attempts + 1
    set('attempts', job.attempts)
  end
  clear_suspect(P, job)
  if tag == 'cancelled' then
    usage()
    set('code', 'cancelled')
    status = 'cancelled'
    finish(P, job, status, fields)
  elseif verdict == 'release' then
    set('stops', job.stops + 1)
    leave(job)
    status = 'queued'
    redis.call('HSET', key('job:' .. id), 'state', status, 'owner', '', unpack(fields))
    ready(job)
    hint(id)
    wake()
  elseif verdict == 'succeed' then
    usage()
    set('content_type', content_type)
    if job.attempts > 1 then redis.call('HDEL', key('job:' .. id), 'code', 'error') end
    redis.call('SET', key('result:' .. id), result, 'PX', P.result_retention_ms + BACKSTOP_MS)
    status = 'succeeded'
    finish(P, job, status, fields)
  else
    if err ~= '' then set('error', err) end
    local due = now + delay_ms
    if verdict == 'retry' and job.attempts < job.max_attempts and (job.deadline_at == 0 or due < job.deadline_at) then
      set('code', code)
      set('due_at', due)
      set('backoff', '1')
      leave(job)
      status = 'scheduled'
      redis.call('HSET', key('job:' .. id), 'state', status, 'owner', '', unpack(fields))
      redis.call('ZADD', key('due'), due, id)
      hint(id)
      wake()
    else
      usage()
      status = 'failed'
      if verdict == 'retry' and job.attempts < job.max_attempts then
        code, why = 'deadline_exceeded', 'deadline'
      elseif verdict ~= 'fail' then
        why = reason
      end
      set('code', code)
      finish(P, job, status, fields, why ~= '' and why or nil)
    end
  end
  -- The gap between completions, a moving average over eight, is what a refusal's Retry-After is made of.
  if status ~= 'queued' and status ~= 'scheduled' then
    if P.done_at > 0 then
      local gap = now - P.done_at
      if gap <= LONGEST_GAP_MS then
        P.gap_ms = P.gaps == 0 and gap or math.floor((P.gap_ms * 7 + gap) / 8)
        P.gaps = math.min(P.gaps + 1, 8)
      end
    end
    P.done_at = now
  end
end

local reply = { tag, echo(now), status, why }
if next_owner ~= '' then
  for _, delivery in ipairs((take(P, worker, { next_owner }, deadline))) do reply[#reply + 1] = delivery end
elseif tag == 'settled' and redis.call('ZCARD', key('leases')) < P.slots and any_ready() then
  wake()
end
keep(P)
return reply
