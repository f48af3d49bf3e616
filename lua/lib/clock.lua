-- clock: the pool's settings and its clock.
--
-- The only clock is Redis TIME, read once per script and made monotonic: where TIME stepped back, `skew` takes up the
-- difference, so the pool's time never regresses and still advances. `clock` is the last time seen.
--
-- A gap in which no script ran (the store was down or its clock jumped) longer than half a lease starts a grace: leases
-- that were live before the gap may be renewed until `grace_until`. Whether a lease is live is one comparison:
-- expiry > P.lapsed.

local GRACE_LEASES = 4 -- a gap within a grace spares what that one spared, within so many leases: no dead lease for ever
local GRACE_FLOOR_MS = 1000 -- time to reconnect, where the renewal interval is shorter

local SETTINGS = {
  'version', 'slots', 'max_queued', 'max_queued_bytes', 'lease_ms', 'renew_ms', 'max_lost_leases',
  'result_retention_ms', 'record_retention_ms', 'idempotency_ms', 'max_dead_letters', 'dead_letter_retention_ms',
  'demand_horizon_ms', 'paused', 'draining',
}
local STATE = { 'clock', 'skew', 'grace_from', 'grace_until', 'seq', 'bytes', 'done_at', 'gap_ms', 'gaps' }

-- Leases that were live at `from` may be renewed for one more renewal interval.
local function grace(P, from)
  P.grace_from, P.grace_until = from, P.now + math.max(P.renew_ms, GRACE_FLOOR_MS)
end

-- Reads settings and time without writing. Returns the pool, or nil and the time where there is none.
local function look_pool()
  local time = redis.call('TIME')
  local raw = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local P = {}
  local values = redis.call('HMGET', key('state'), unpack(STATE))
  for i = 1, #STATE do P[STATE[i]] = tonumber(values[i]) or 0 end
  P.last = P.clock
  P.now = raw + P.skew
  if P.now < P.last then
    P.skew = P.skew + (P.last - P.now)
    P.now = P.last
  end
  values = redis.call('HMGET', key('pool'), unpack(SETTINGS))
  if not values[1] then return nil, P.now end
  for i = 1, #SETTINGS do P[SETTINGS[i]] = tonumber(values[i]) or 0 end
  if P.last > 0 and P.now - P.last > P.lease_ms / 2 then
    local again = P.last < P.grace_until and P.now - P.grace_from <= GRACE_LEASES * P.lease_ms
    grace(P, again and P.grace_from or P.last)
  end
  P.lapsed = P.now
  if P.now < P.grace_until then P.lapsed = P.grace_from end
  return P, P.now
end

-- Remembers the time that this script acted at and the pool's numbers, in one write at the script's end.
local function keep(P)
  redis.call('HSET', key('state'), 'clock', P.now, 'skew', P.skew, 'grace_from', P.grace_from, 'grace_until',
    P.grace_until, 'seq', P.seq, 'bytes', P.bytes, 'done_at', P.done_at, 'gap_ms', P.gap_ms, 'gaps', P.gaps)
end
