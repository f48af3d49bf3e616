-- base: names of keys and exact numbers.
--
-- KEYS[1] is the pool's declared prefix, `tg<schema>:{<pool>}`; every key of a step is built from it, so all share one
-- hash tag. Numbers are integers below 2^53. `int` writes them in
-- replies and joined text, since Lua's own tostring loses digits above 14; an argument of redis.call the server writes
-- with 17.

local base = KEYS[1]

local function key(name) return base .. ':' .. name end

local function int(n) return string.format('%.0f', n) end

local function num(s) return tonumber(s or 0) or 0 end
