-- What Redis has no single command for, of memcached's commands. KEYS[1] is the
-- item's key, ARGV[1] says what to do. Answers are the words of memcached's
-- meta replies, 'NAN' for what is no number and 'BIG' for what gets too long,
-- with a value and the value's number for compare-and-swap behind them.
-- How items lie here is told in envelope.rs.
local key, op, unique = KEYS[1], ARGV[1], ARGV[2]
local MAGIC, NO_FLAGS = '\193mc', '\0\0\0\0'

local function open(raw)
  if #raw >= 8 and raw:sub(1, 4) == MAGIC .. '\1' then
    return raw:sub(5, 8), raw:sub(9)
  end
  return NO_FLAGS, raw
end

local function seal(flags, value)
  if flags == NO_FLAGS and value:sub(1, 3) ~= MAGIC then return value end
  return MAGIC .. '\1' .. flags .. value
end

local function number(raw)
  -- what clients read as a signed number of 64 bits is to be none below zero
  return '0' .. redis.sha1hex(raw):sub(1, 15)
end

-- unit is a word of SET or GETEX, or empty
local function set(raw, unit, time)
  if unit == '' then
    redis.call('SET', key, raw)
  elseif time == '' then
    redis.call('SET', key, raw, unit)
  else
    redis.call('SET', key, raw, unit, time)
  end
end

if op == 'gat' then
  local items = {}
  for i, each in ipairs(KEYS) do
    local item
    if ARGV[3] == '' then
      item = redis.pcall('GETEX', each, ARGV[2])
    else
      item = redis.pcall('GETEX', each, ARGV[2], ARGV[3])
    end
    if type(item) == 'table' and item.err then
      if not item.err:find('WRONGTYPE', 1, true) then return item end
      item = false
    end
    items[i] = item
  end
  return items
end

if op == 'touch' then
  if redis.call('EXISTS', key) == 0 then return {'NF'} end
  redis.call('PERSIST', key)
  return {'HD'}
end

if op == 'look' then
  local raw = redis.call('GET', key)
  if not raw then return {'EN'} end
  return {'VA', raw, redis.call('PTTL', key)}
end

if op == 'append' and unique == '' and ARGV[5] == '' then
  -- Behind what is at least as long as the magic, nothing changes what it is.
  local len = redis.call('STRLEN', key)
  if len >= #MAGIC then
    if len + #ARGV[3] > tonumber(ARGV[4]) then return {'BIG'} end
    redis.call('APPEND', key, ARGV[3])
    return {'HD'}
  end
end

local raw = redis.call('GET', key)
if raw and unique ~= '' and unique ~= number(raw) then return {'EX'} end

if op == 'cas' then
  if not raw then return {'NF'} end
  set(ARGV[3], ARGV[4], ARGV[5])
  return {'HD', '', number(ARGV[3])}
end

if op == 'delete' then
  if not raw then return {'NF'} end
  redis.call('DEL', key)
  return {'HD'}
end

if op == 'append' or op == 'prepend' then
  if not raw then return {'NS'} end
  if #raw + #ARGV[3] > tonumber(ARGV[4]) then return {'BIG'} end
  local flags, value = open(raw)
  if op == 'append' then
    value = value .. ARGV[3]
  else
    value = ARGV[3] .. value
  end
  local joined = seal(flags, value)
  set(joined, 'KEEPTTL', '')
  if ARGV[5] == '' then return {'HD'} end
  return {'HD', '', number(joined)}
end

-- incr and decr. Numbers have up to 64 bits and those of Lua 53, so they are
-- reckoned with in two parts of ten digits.
local TOP_HIGH, TOP_LOW, PART = 1844674407, 3709551616, 10000000000

local function parts(digits)
  if #digits > 20 then return nil end
  digits = ('0'):rep(20 - #digits) .. digits
  local high, low = tonumber(digits:sub(1, 10)), tonumber(digits:sub(11))
  if high > TOP_HIGH or (high == TOP_HIGH and low >= TOP_LOW) then return nil end
  return high, low
end

local function digits(high, low)
  if high == 0 then return string.format('%.0f', low) end
  return string.format('%.0f%010.0f', high, low)
end

if not raw then
  if ARGV[4] == '' then return {'NF'} end
  set(ARGV[4], ARGV[7], ARGV[8])
  return {'VA', ARGV[4], number(ARGV[4])}
end
local flags, value = open(raw)
local sign, figures, rest = value:match('^[ \t-\r]*([+-]?)(%d+)(.?)')
if not figures or not (rest == '' or rest:match('^[%z \t-\r]$')) then return {'NAN'} end
figures = figures:gsub('^0+(%d)', '%1')
if sign == '-' and figures ~= '0' then return {'NAN'} end
local high, low = parts(figures)
if not high then return {'NAN'} end
local by_high, by_low = parts(ARGV[3])
if op == 'incr' then
  high, low = high + by_high, low + by_low
  if low >= PART then high, low = high + 1, low - PART end
  if high > TOP_HIGH or (high == TOP_HIGH and low >= TOP_LOW) then
    high, low = high - TOP_HIGH, low - TOP_LOW
    if low < 0 then high, low = high - 1, low + PART end
  end
elseif high < by_high or (high == by_high and low < by_low) then
  high, low = 0, 0
else
  high, low = high - by_high, low - by_low
  if low < 0 then high, low = high - 1, low + PART end
end
local text = digits(high, low)
local counted = seal(flags, text)
set(counted, ARGV[5], ARGV[6])
return {'VA', text, number(counted)}
