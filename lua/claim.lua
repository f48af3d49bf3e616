-- claim: hand waiting jobs to a worker, each under a lease of its own.
--
-- An owner that already has a live delivery gets that delivery again: a claim whose reply was lost may be sent again. One
-- whose delivery is over gets nothing.
--
-- It may run when memory is full: only ended work gives memory back.
--
-- FLAGS allow-oom
-- USES base clock job lapse take
-- KEYS base
-- ARGV deadline
-- ARGV worker    id of the worker's process life
-- ARGV owners... 128 random bits for each delivery wanted
-- REPLY late now
-- REPLY no_pool now
-- REPLY deliveries now delivery...
-- REPLY none now reason next_due
local deadline, worker = tonumber(ARGV[1]), ARGV[2]

local P, now = look_pool()
if now > deadline then return { 'late', echo(now) } end
if not P then return { 'no_pool', echo(now) } end

local owners = {}
for i = 3, #ARGV do owners[#owners + 1] = ARGV[i] end
local taken, reason, next_due = take(P, worker, owners, deadline)
keep(P)
if #taken == 0 then return { 'none', echo(now), reason or 'empty', next_due or '' } end
return { 'deliveries', echo(now), unpack(taken) }
