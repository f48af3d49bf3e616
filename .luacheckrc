-- The steps run inside Redis; lib/ is put before each step that uses it.
std = "lua51"
max_line_length = 120
globals = { "redis" }
read_globals = { "KEYS", "ARGV", "cmsgpack" }
