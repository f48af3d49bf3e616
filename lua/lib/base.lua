-- base: names of keys and exact numbers.
--
-- KEYS[1] is the pool's declared prefix, `tg<schema>:{<pool>}`; every key of a step is built from it, so all share one
-- hash tag. Numbers are integers below 2^53. `int` writes them in
-- replies and joined text, since Lua's own tostring loses digits above 14; an argument of redis.call the server writes
-- with 17.
--
-- The last argument is minted by the caller for this very send. It is taken off before a step counts its arguments, and
-- every reply carries it back behind its first number, so that the caller knows a reply that answers another send.

local op = table.remove(ARGV)
local base = KEYS[1]

local function key(name) return base .. ':' .. name end

local function int(n) return string.format('%.0f', n) end

local function num(s) return tonumber(s or 0) or 0 end

-- The second item of every reply: the pool's time (or a version), and which send it answers.
local function echo(n) return int(n) .. ' ' .. op end
