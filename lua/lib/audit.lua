-- audit: around a whole step where a run is recorded, for tests and investigations. What is shipped runs without it.
--
-- Scripts run one after another, so one entry for each, written by the script itself and last of all, is the true
-- order of everything that happened to the pool. Entries are numbered 1, 2, 3 … without a hole, as ids 0-1, 0-2, 0-3 …:
-- a lost one shows, and a failover rewinds the numbers together with what they tell of.
--
-- It names no local of its own that a step may use but `redis`, whose `call` remembers the first TIME that was read.

local MOST = 4000000 -- entries kept where nobody takes them away: some gigabytes, well above any run that is drained

local server, args, raw_ms = redis, cmsgpack.pack(ARGV), nil -- as they came: a step takes from them
local redis = {
  call = function(...)
    local reply = server.call(...)
    if raw_ms == nil and (...) == 'TIME' then
      raw_ms = string.format('%.0f', tonumber(reply[1]) * 1000 + math.floor(tonumber(reply[2]) / 1000))
    end
    return reply
  end,
}

local function step()
-- STEP
end

local answer = step()
server.call('XADD', KEYS[1] .. ':audit', 'MAXLEN', '~', MOST, '0-*', 'step', 'NAME', 'raw_ms', raw_ms or '0',
  'args', args, 'reply', cmsgpack.pack(answer))
return answer
