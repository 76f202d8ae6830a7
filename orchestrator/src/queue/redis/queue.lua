-- The queue's whole state changes here, one call at a time: ARGV[1] names the call, the rest is its own.
-- Every call may be repeated: a caller whose answer was lost calls again. The order is that of
-- local/order.rs. Times are milliseconds of the server's clock; where that jumps, what stands too far
-- ahead is pulled back, and the database decides in any case. A server short of memory may have thrown away
-- any of the keys: what then has no work is dropped here, and offered again by who knows the database.
--
-- Work is "s" or "l" for short or long, the profile, a new line, and the user.

local WORK = KEYS[1]   -- hash: lane -> its work as offered last
local SHORT = KEYS[2]  -- sorted set: lanes that are ready, by standing
local LONG = KEYS[3]
local LATER = KEYS[4]  -- sorted set: lanes by the time they are due
local TAKEN = KEYS[5]  -- sorted set: lanes by the time their taker is given up
local OWNER = KEYS[6]  -- hash: lane -> token of its taker
local HELD = KEYS[7]   -- hash: token -> lane, a new line, its work as it was taken
local NOTES = KEYS[8]  -- hash: "again LANE" -> due time of what was offered while taken; "died LANE" -> takers that were
                       -- given up since it was last given back
local TAGS = KEYS[9]   -- sorted set: users by the turn from which their next lane counts
local META = KEYS[10]  -- hash: turn, arrivals, swept; round: until when nobody gets the turn to offer all lanes
local DEAD = KEYS[11]  -- set: lanes put aside
local WAKE_SHORT = KEYS[12] -- lists: one element wakes one waiting worker
local WAKE_LONG = KEYS[13]

local ARRIVALS = 1048576 -- a standing is turn * ARRIVALS + arrival, exact in a double for 8.5e9 turns
local AT_ONCE = 200
local WAKES = 64
local SWEEP = 1000 -- milliseconds between two looks for dead takers
local PAUSE = 60000 -- longest after a death

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Lua's own conversion keeps 14 digits.
local function text(number) return string.format('%.0f', number) end

local function number(reply) return tonumber(reply or 0) or 0 end

local function is_short(work) return work:byte(1) == 115 end

local function user_of(work) return work:sub(work:find('\n', 1, true) + 1) end

local function profile_of(work) return work:sub(2, work:find('\n', 1, true) - 1) end

local function line_up(lane, work)
  local user = user_of(work)
  local turn = math.max(number(call('ZSCORE', TAGS, user)), number(call('HGET', META, 'turn')))
  call('ZADD', TAGS, text(turn + 1), user)
  local arrival = call('HINCRBY', META, 'arrivals', 1) % ARRIVALS
  local short = is_short(work)
  call('ZADD', short and SHORT or LONG, text(turn * ARRIVALS + arrival), lane)
  local wake = short and WAKE_SHORT or WAKE_LONG
  if call('RPUSH', wake, '1') > 2 * WAKES then call('LTRIM', wake, -WAKES, -1) end
end

-- A lane that stands nowhere.
local function enter(lane, work, due)
  if not work then return end
  call('HSET', WORK, lane, work)
  if due <= now then
    line_up(lane, work)
  else
    call('ZADD', LATER, text(due), lane)
  end
end

-- A lane that may stand somewhere.
local function stand(lane, work, due)
  if call('SISMEMBER', DEAD, lane) == 1 then return end
  if call('ZSCORE', TAKEN, lane) and call('HEXISTS', OWNER, lane) == 1 then
    local known = call('HGET', NOTES, 'again ' .. lane)
    call('HSET', NOTES, 'again ' .. lane, text(known and math.min(tonumber(known), due) or due))
    call('HSET', WORK, lane, work)
    return
  end
  call('HSETNX', WORK, lane, work)
  local known = call('ZSCORE', LATER, lane)
  if known then
    -- After a death the pause holds; one that is longer than any was left by a clock that was set back.
    local holds = tonumber(known) <= now + PAUSE and call('HGET', NOTES, 'died ' .. lane)
    if tonumber(known) > due and not holds then
      call('ZREM', LATER, lane)
      enter(lane, work, due)
    end
  elseif not call('ZSCORE', SHORT, lane) and not call('ZSCORE', LONG, lane) then
    enter(lane, work, due)
  end
end

-- The lane is nobody's. Answers when it is due again, if it was offered meanwhile, and how many takers died.
local function release(lane, token)
  call('HDEL', OWNER, lane)
  if token then call('HDEL', HELD, token) end
  call('ZREM', TAKEN, lane)
  local notes = call('HMGET', NOTES, 'again ' .. lane, 'died ' .. lane)
  if notes[1] then call('HDEL', NOTES, 'again ' .. lane) end
  return notes[1] and tonumber(notes[1]), number(notes[2])
end

local function ripen()
  for _, lane in ipairs(call('ZRANGEBYSCORE', LATER, '-inf', text(now), 'LIMIT', 0, AT_ONCE)) do
    call('ZREM', LATER, lane)
    local work = call('HGET', WORK, lane)
    if work then line_up(lane, work) end
  end
end

-- A taker died with the lane: it comes back, each time later, and at last not at all.
local function bury(lane, deaths)
  local _, died = release(lane, call('HGET', OWNER, lane))
  died = died + 1
  if died >= deaths then
    call('SADD', DEAD, lane)
    call('HDEL', WORK, lane)
    call('HDEL', NOTES, 'died ' .. lane)
  else
    call('HSET', NOTES, 'died ' .. lane, died)
    -- The first may well be nobody's fault.
    enter(lane, call('HGET', WORK, lane), died == 1 and now or now + math.min(PAUSE, 500 * 2 ^ died))
  end
end

-- Gives up takers that were not heard of.
local function give_up(lease, deaths)
  for _, lane in ipairs(call('ZRANGEBYSCORE', TAKEN, text(now + 2 * lease), '+inf', 'LIMIT', 0, AT_ONCE)) do
    call('ZADD', TAKEN, text(now + lease), lane)
  end
  for _, lane in ipairs(call('ZRANGEBYSCORE', TAKEN, '-inf', text(now), 'LIMIT', 0, AT_ONCE)) do
    bury(lane, deaths)
  end
  -- What lost its owner counts for nobody's limit.
  local held = call('HGETALL', HELD)
  for i = 1, #held, 2 do
    local lane = held[i + 1]:sub(1, held[i + 1]:find('\n', 1, true) - 1)
    if call('HGET', OWNER, lane) ~= held[i] then call('HDEL', HELD, held[i]) end
  end
end

-- What need not be done at each call.
local function sweep(lease, deaths)
  local meta = call('HMGET', META, 'swept', 'turn')
  if math.abs(now - number(meta[1])) < SWEEP then return end
  -- A replica refuses this; a server without memory does not, and lets what follows pass.
  call('HDEL', META, 'probe')
  call('HSET', META, 'swept', text(now))
  -- A tag in the past says nothing.
  call('ZREMRANGEBYSCORE', TAGS, '-inf', text(number(meta[2])))
  give_up(lease, deaths)
end

-- Answers a function that tells whether work is below its limits.
local function limits(per_user, per_profile)
  local users, profiles = {}, {}
  for _, held in ipairs(call('HVALS', HELD)) do
    local work = held:sub(held:find('\n', 1, true) + 1)
    local user, profile = user_of(work), profile_of(work)
    users[user] = (users[user] or 0) + 1
    profiles[profile] = (profiles[profile] or 0) + 1
  end
  return function(work)
    local profile = profile_of(work)
    local most = per_profile[profile]
    return (per_user == 0 or (users[user_of(work)] or 0) < per_user) and (not most or (profiles[profile] or 0) < most)
  end
end

-- The lane of the lowest standing that fits.
local function first(ready, fits)
  local from, chunk = 0, 1
  while true do
    local found = call('ZRANGE', ready, from, from + chunk - 1, 'WITHSCORES')
    local dropped = 0
    for i = 1, #found, 2 do
      local work = call('HGET', WORK, found[i])
      if not work then
        dropped = dropped + call('ZREM', ready, found[i])
      elseif not fits or fits(work) then
        return { from = ready, lane = found[i], standing = tonumber(found[i + 1]), work = work }
      end
    end
    if #found < 2 * chunk then return nil end
    from = from + chunk - dropped
    chunk = 64
  end
end

local calls = {}

-- offer: lane, work, delay, ...
function calls.offer()
  for i = 2, #ARGV, 3 do
    stand(ARGV[i], ARGV[i + 1], now + tonumber(ARGV[i + 2]))
  end
end

-- take: token, lease, deaths, "long" or "short", per user (0: no limit), profile, limit, ...
-- Answers the lane with its work; else the milliseconds until something is due, or nothing.
function calls.take()
  local token, long = ARGV[2], ARGV[5] == 'long'
  local mine = call('HGET', HELD, token)
  if mine then return mine end
  sweep(tonumber(ARGV[3]), tonumber(ARGV[4]))
  ripen()
  local per_user, per_profile, fits = tonumber(ARGV[6]), {}, nil
  for i = 7, #ARGV, 2 do per_profile[ARGV[i]] = tonumber(ARGV[i + 1]) end
  if per_user > 0 or ARGV[7] then fits = limits(per_user, per_profile) end
  local chosen = first(SHORT, fits)
  if long then
    local other = first(LONG, fits)
    if other and (not chosen or other.standing < chosen.standing) then chosen = other end
  end
  if not chosen then
    local due = call('ZRANGE', LATER, 0, 0, 'WITHSCORES')[2]
    local lost = call('ZRANGE', TAKEN, 0, 0, 'WITHSCORES')[2]
    -- Dead takers are looked for at a sweep only.
    local swept = number(call('HGET', META, 'swept')) + SWEEP
    local soonest = math.min(tonumber(due or math.huge), lost and math.max(tonumber(lost), swept) or math.huge)
    if soonest == math.huge then return nil end
    return math.max(1, soonest - now)
  end
  local held = chosen.lane .. '\n' .. chosen.work
  call('ZREM', chosen.from, chosen.lane)
  call('HSET', OWNER, chosen.lane, token)
  call('HSET', HELD, token, held)
  call('ZADD', TAKEN, text(now + tonumber(ARGV[3])), chosen.lane)
  local turn = math.floor(chosen.standing / ARRIVALS)
  if turn > number(call('HGET', META, 'turn')) then call('HSET', META, 'turn', text(turn)) end
  return held
end

-- done: lane, token[, work, delay]
function calls.done()
  local lane, token = ARGV[2], ARGV[3]
  if call('HGET', OWNER, lane) ~= token then
    call('HDEL', HELD, token)
    return
  end
  local due, died = release(lane, token)
  if died > 0 then call('HDEL', NOTES, 'died ' .. lane) end
  if ARGV[4] then
    enter(lane, ARGV[4], now + tonumber(ARGV[5]))
  elseif due then
    enter(lane, call('HGET', WORK, lane), due)
  else
    call('HDEL', WORK, lane)
  end
end

-- beat: lease, lane, token, ...
function calls.beat()
  call('HDEL', META, 'probe')
  local until_then = text(now + tonumber(ARGV[2]))
  for i = 3, #ARGV, 2 do
    if call('HGET', OWNER, ARGV[i]) == ARGV[i + 1] then call('ZADD', TAKEN, 'XX', until_then, ARGV[i]) end
  end
end

-- leave: token. What it holds is ready again.
function calls.leave()
  local held = call('HGET', HELD, ARGV[2])
  if not held then return end
  local lane = held:sub(1, held:find('\n', 1, true) - 1)
  release(lane, ARGV[2])
  enter(lane, call('HGET', WORK, lane), now)
end

-- arrive: worker, epoch, deaths. Earlier starts of this worker died with what they hold.
function calls.arrive()
  local worker, present = ARGV[2] .. ':', ARGV[2] .. ':' .. ARGV[3] .. ':'
  local owners = call('HGETALL', OWNER)
  for i = 1, #owners, 2 do
    local token = owners[i + 1]
    if token:sub(1, #worker) == worker and token:sub(1, #present) ~= present then bury(owners[i], tonumber(ARGV[4])) end
  end
end

-- place: lane
function calls.place() return call('ZRANK', SHORT, ARGV[2]) or call('ZRANK', LONG, ARGV[2]) end

-- dead
function calls.dead() return call('SMEMBERS', DEAD) end

-- forgive: lane. Answers 1 where it was put aside.
function calls.forgive()
  call('HDEL', NOTES, 'died ' .. ARGV[2])
  return call('SREM', DEAD, ARGV[2])
end

-- turn: how long it holds, longest rest. Answers 1 where the caller is to offer all lanes. One whose answer was
-- lost has it for nothing, and the next has it when it is over.
function calls.turn()
  -- A server that takes no writes says so to each who asks, and not only to the one whose turn it is.
  call('HSETNX', META, 'round', '0')
  local round = number(call('HGET', META, 'round'))
  if round > now and round <= now + tonumber(ARGV[3]) then return 0 end
  call('HSET', META, 'round', text(now + tonumber(ARGV[2])))
  return 1
end

-- rest: how long. Where all was lost meanwhile the next who asks has the turn.
function calls.rest()
  if call('HEXISTS', META, 'round') == 1 then call('HSET', META, 'round', text(now + tonumber(ARGV[2]))) end
end

return calls[ARGV[1]]()
