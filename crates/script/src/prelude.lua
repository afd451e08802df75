-- What stands between scripts and Lua: run once for each state, before any
-- script. It is given the functions of the host and returns what the host
-- needs. A name that ends in `_` is Lua's own function of that name, which
-- scripts reach only through the one that guards it.
local host = ...

local next, type, rawget, unpack, select = next, type, rawget, unpack, select
local pcall_, xpcall_, error = pcall, xpcall, error
local create_, resume_ = coroutine.create, coroutine.resume
local concat = table.concat

-- Tables that scripts may read, by what stands for them.
local hidden = {}
-- What they show as their metatable: as it is one for all, nobody may change it
-- either.
local seal = {}
hidden[seal] = {}
setmetatable(seal, { __newindex = host.frozen, __metatable = seal })

-- What stands for a table that scripts may read and not change.
local function frozen(real)
  local proxy = {}
  hidden[proxy] = real
  return setmetatable(proxy, { __index = real, __newindex = host.frozen, __metatable = seal })
end

local function copy(real)
  local all = {}
  for key, value in next, real do all[key] = value end
  return all
end

local base = {}

-- A script that is at its end cannot catch that.
local function caught(ok, ...)
  if ok then return true, ... end
  return false, host.caught((...))
end

-- Redis gives the text of an error that is a table.
local function told(ok, ...)
  if ok then return true, ... end
  local err = ...
  if type(err) == "table" then
    local text = err.err
    if type(text) == "string" or type(text) == "number" then err = text end
  end
  return false, err
end

function base.pcall(...)
  return told(caught(pcall_(...)))
end

function base.xpcall(f, handler)
  return caught(xpcall_(f, function(err) return handler(host.caught(err)) end))
end

-- How deep coroutines resume each other: each level takes the C stack.
local depth, DEPTH_MAX = 0, 100

local function left(...)
  depth = depth - 1
  return caught(...)
end

local function resume(co, ...)
  if depth >= DEPTH_MAX then return false, "C stack overflow" end
  depth = depth + 1
  return left(resume_(co, ...))
end

local coroutines = copy(coroutine)

function coroutines.resume(co, ...)
  if type(co) ~= "thread" then resume_(co) end
  return resume(co, ...)
end

local function unwrapped(ok, ...)
  if ok then return ... end
  error((...), 3)
end

function coroutines.wrap(f)
  local co = create_(f)
  return function(...) return unwrapped(resume(co, ...)) end
end

-- What changes tables without asking their metatables.

local setmetatable_, rawset_, insert_, sort_ = setmetatable, rawset, table.insert, table.sort
local pairs_, ipairs_ = pairs, ipairs

function base.setmetatable(of, metatable)
  if hidden[of] then host.frozen_raw() end
  local setmetatable = setmetatable_
  setmetatable(of, metatable)
  return of
end

function base.rawset(of, key, value)
  if hidden[of] then host.frozen_raw() end
  local rawset = rawset_
  rawset(of, key, value)
  return of
end

function base.rawget(of, key)
  local rawget = rawget
  local value = rawget(hidden[of] or of, key)
  return value
end

function base.next(of, key)
  local next = next
  if type(of) ~= "table" then next(of) end
  return next(hidden[of] or of, key)
end

function base.pairs(of)
  local pairs = pairs_
  if type(of) ~= "table" then pairs(of) end
  if hidden[of] then of = copy(hidden[of]) end
  return next, of, nil
end

local tables = copy(table)

function tables.insert(of, ...)
  if hidden[of] then host.frozen_raw() end
  local insert = insert_
  if select("#", ...) == 1 then
    insert(of, (...))
  else
    insert(of, ...)
  end
end

-- Lua's own comparison does not look at the time, and may take long: of long
-- strings, each reads all of them.
local function less(one, other) return one < other end

function tables.sort(of, compare)
  local sort = sort_
  if compare == nil and type(of) == "table" then compare = less end
  sort(of, compare)
  host.check_end()
end

-- Slots on the stack of a C function, for its arguments and results. Lua's own check may overflow.
local STACK_MAX = 8000

function base.unpack(...)
  local unpack = unpack
  local of, from, to = ...
  if type(of) ~= "table" then unpack(of) end
  local count = (tonumber(to) or #of) - (tonumber(from) or 1) + 1
  if not (select("#", ...) + count <= STACK_MAX) then host.fail("too many results to unpack") end
  return unpack(...)
end

-- Compiling: text alone.

function base.loadstring(text, name)
  return host.compile(text, name)
end

function base.load(reader, name)
  local parts = {}
  while true do
    local ok, part = caught(pcall_(reader))
    if not ok then return nil, part end
    if part == nil or part == "" then break end
    if type(part) ~= "string" then return nil, "reader function must return a string" end
    parts[#parts + 1] = part
  end
  return host.compile(concat(parts), name or "=(load)")
end

for _, name in ipairs {
  "assert", "error", "gcinfo", "getmetatable", "ipairs", "rawequal", "select", "tonumber",
  "tostring", "type", "_VERSION",
} do
  base[name] = _G[name]
end
base.collectgarbage = host.collectgarbage
base.__redis__err__handler = host.on_error

local strings = copy(string)
for name, f in next, host.strings do strings[name] = f end

local gsub_, next_match, substring = strings.gsub, strings.next_match, string.sub
strings.next_match = nil

-- What a function puts in place of a match.
local function replaced(text, f, first, last, ...)
  if not first then return nil end
  local value = f(...)
  if not value then value = substring(text, first, last) end
  if type(value) ~= "string" and type(value) ~= "number" then
    host.fail("invalid replacement value (a " .. type(value) .. ")")
  end
  return value, first, last
end

function strings.gsub(text, pattern, by, max)
  if type(by) ~= "function" then
    local result, count = gsub_(text, pattern, by, max)
    return result, count
  end
  if type(text) ~= "string" then gsub_(text, pattern, "") end
  text, max = tostring(text), tonumber(max) or 1 / 0
  local parts, at, count = {}, 1, 0
  while count < max do
    local value, first, last = replaced(text, by, next_match(text, pattern, at))
    if not value then break end
    count = count + 1
    parts[#parts + 1] = substring(text, at, first - 1)
    parts[#parts + 1] = value
    at = first
    if last >= first then
      at = last + 1
    elseif at <= #text then
      parts[#parts + 1] = substring(text, at, at)
      at = at + 1
    else
      break
    end
    if substring(pattern, 1, 1) == "^" then break end
  end
  parts[#parts + 1] = substring(text, at)
  return concat(parts), count
end
local math = copy(math)
for name, f in next, host.math do math[name] = f end

local libraries = {
  string = frozen(strings),
  table = frozen(tables),
  math = frozen(math),
  coroutine = frozen(coroutines),
}
for name, library in next, host.libraries do libraries[name] = frozen(library) end

-- Globals for scripts of one kind, whose library `redis` is given.
local function globals(redis)
  local all = copy(base)
  for name, library in next, libraries do all[name] = library end
  all.redis = frozen(redis)
  setmetatable_(all, { __index = host.missing })
  local proxy = frozen(all)
  all._G = proxy
  return proxy, all
end

-- Globals for libraries. While a library is loaded, it sees nothing but `loading` as `redis`. The
-- second value returned switches this on and off.
local function of_libraries(redis, loading)
  local _, called = globals(redis)
  local missing = { __index = host.missing }
  local loaded = setmetatable_({ redis = frozen(setmetatable_(loading, missing)) }, missing)
  local shown = { __newindex = host.frozen, __metatable = seal }
  local proxy = setmetatable_({}, shown)
  called._G = proxy
  local function show_loading(is_loading)
    local real = called
    if is_loading then real = loaded end
    hidden[proxy], shown.__index = real, real
  end
  show_loading(false)
  return proxy, show_loading
end

-- Strings have the functions of the library as methods.
local of_strings = getmetatable("")
of_strings.__index = libraries.string
of_strings.__metatable = frozen({ __index = libraries.string })

local on_error = host.on_error

return {
  host = host,
  globals = globals,
  of_libraries = of_libraries,
  -- A library has no keys.
  run = function(f, all, keys, args)
    depth = 0
    if all then all.KEYS, all.ARGV = keys, args end
    return xpcall_(f, on_error)
  end,
  call = function(f, keys, args)
    depth = 0
    return xpcall_(function() return f(keys, args) end, on_error)
  end,
}
