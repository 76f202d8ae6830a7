-- The queue's whole state changes here, one call at a time: ARGV[1] names the call, the rest is its own.
-- Every call may be repeated: a caller whose answer was lost calls again. The order is that of
-- local/order.rs. Times are milliseconds of the server's clock; where that jumps, what stands too far
-- ahead is pulled back, and the database decides in any case. A server short of memory may have thrown away
-- any of the keys: what then has no work is dropped here, and offered again by who knows the database.

local WORK = KEYS[1]     -- hash: lane -> its work as offered last
local SHORT = KEYS[2]    -- sorted set: lanes that are ready, by standing
local LONG = KEYS[3]
local LATER = KEYS[4]    -- sorted set: lanes by the time they are due
local TAKEN = KEYS[5]    -- sorted set: lanes by the time their taker is given up
local HELD = KEYS[6]     -- hash: lane -> its work as it was taken
local OWNER = KEYS[7]    -- hash: lane -> token of its taker
local TOKENS = KEYS[8]   -- hash: token -> lane
local AGAIN = KEYS[9]    -- hash: lane -> due time, for what was offered while taken
local TAGS = KEYS[10]    -- sorted set: users by the turn from which their next lane counts
local META = KEYS[11]    -- hash: turn, arrivals
local RUNNING = KEYS[12] -- hash: u:USER and p:PROFILE -> how many are taken
local DEATHS = KEYS[13]  -- hash: lane -> takers that were given up since it was last given back
local DEAD = KEYS[14]    -- set: lanes put aside
local WAKE_SHORT = KEYS[15] -- lists: one element wakes one waiting worker
local WAKE_LONG = KEYS[16]

local ARRIVALS = 1048576 -- a standing is turn * ARRIVALS + arrival, exact in a double for 8.5e9 turns
local LOOKED_AT = 256
local AT_ONCE = 200
local WAKES = 64

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Lua's own conversion keeps 14 digits.
local function text(number) return string.format('%.0f', number) end

-- A replica refuses this; a server without memory does not, and lets what follows pass.
local function probe() redis.call('HDEL', META, 'probe') end

local function number(reply) return tonumber(reply or 0) or 0 end

local function line_up(lane, work)
  if not work then return end
  local told = cjson.decode(work)
  local turn = math.max(number(redis.call('ZSCORE', TAGS, told.user)), number(redis.call('HGET', META, 'turn')))
  redis.call('ZADD', TAGS, text(turn + 1), told.user)
  local arrival = redis.call('HINCRBY', META, 'arrivals', 1) % ARRIVALS
  local short = told.length == 'short'
  redis.call('ZADD', short and SHORT or LONG, text(turn * ARRIVALS + arrival), lane)
  local wake = short and WAKE_SHORT or WAKE_LONG
  redis.call('RPUSH', wake, '1')
  redis.call('LTRIM', wake, -WAKES, -1)
end

local function enter(lane, work, due)
  if not work then return end
  redis.call('HSET', WORK, lane, work)
  if due <= now then
    line_up(lane, work)
  else
    redis.call('ZADD', LATER, text(due), lane)
  end
end

local function stand(lane, work, due)
  if redis.call('SISMEMBER', DEAD, lane) == 1 then return end
  if redis.call('ZSCORE', TAKEN, lane) and redis.call('HEXISTS', OWNER, lane) == 1 then
    local known = redis.call('HGET', AGAIN, lane)
    redis.call('HSET', AGAIN, lane, text(known and math.min(tonumber(known), due) or due))
    redis.call('HSET', WORK, lane, work)
    return
  end
  redis.call('HSETNX', WORK, lane, work)
  local known = redis.call('ZSCORE', LATER, lane)
  if known then
    if tonumber(known) > due then
      redis.call('ZREM', LATER, lane)
      enter(lane, work, due)
    end
  elseif not redis.call('ZSCORE', SHORT, lane) and not redis.call('ZSCORE', LONG, lane) then
    enter(lane, work, due)
  end
end

local function less(field)
  if redis.call('HINCRBY', RUNNING, field, -1) <= 0 then redis.call('HDEL', RUNNING, field) end
end

-- The lane is nobody's. Answers when it is due again, if it was offered meanwhile.
local function release(lane)
  local held = redis.call('HGET', HELD, lane)
  if held then
    local told = cjson.decode(held)
    less('u:' .. told.user)
    less('p:' .. told.profile)
  end
  local owner = redis.call('HGET', OWNER, lane)
  if owner then redis.call('HDEL', TOKENS, owner) end
  redis.call('HDEL', OWNER, lane)
  redis.call('HDEL', HELD, lane)
  redis.call('ZREM', TAKEN, lane)
  local again = redis.call('HGET', AGAIN, lane)
  redis.call('HDEL', AGAIN, lane)
  return again and tonumber(again)
end

local function ripen()
  for _, lane in ipairs(redis.call('ZRANGEBYSCORE', LATER, '-inf', text(now), 'LIMIT', 0, AT_ONCE)) do
    redis.call('ZREM', LATER, lane)
    line_up(lane, redis.call('HGET', WORK, lane))
  end
end

-- Gives up takers that were not heard of: their lanes come back, each time later, and at last not at all.
local function give_up(lease, deaths)
  for _, lane in ipairs(redis.call('ZRANGEBYSCORE', TAKEN, text(now + 2 * lease), '+inf', 'LIMIT', 0, AT_ONCE)) do
    redis.call('ZADD', TAKEN, text(now + lease), lane)
  end
  for _, lane in ipairs(redis.call('ZRANGEBYSCORE', TAKEN, '-inf', text(now), 'LIMIT', 0, AT_ONCE)) do
    release(lane)
    local died = redis.call('HINCRBY', DEATHS, lane, 1)
    if died >= deaths then
      redis.call('SADD', DEAD, lane)
      redis.call('HDEL', WORK, lane)
      redis.call('HDEL', DEATHS, lane)
    else
      enter(lane, redis.call('HGET', WORK, lane), now + math.min(60000, 500 * 2 ^ died))
    end
  end
end

-- The lane of the lowest standing that is below its limits.
local function first(ready, per_user, per_profile)
  local from = 0
  local chunk = 4
  while from < LOOKED_AT do
    local found = redis.call('ZRANGE', ready, from, from + chunk - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      local work = redis.call('HGET', WORK, found[i])
      local told = work and cjson.decode(work)
      local most = told and per_profile[told.profile]
      if not work then
        redis.call('ZREM', ready, found[i])
      elseif (per_user == 0 or number(redis.call('HGET', RUNNING, 'u:' .. told.user)) < per_user)
        and (not most or number(redis.call('HGET', RUNNING, 'p:' .. told.profile)) < most) then
        return { lane = found[i], standing = tonumber(found[i + 1]), work = work, told = told }
      end
    end
    if #found < 2 * chunk then return nil end
    from = from + chunk
    chunk = math.min(64, LOOKED_AT - from)
  end
end

local calls = {}

-- offer: lane, work, delay, ...
function calls.offer()
  ripen()
  for i = 2, #ARGV, 3 do
    stand(ARGV[i], ARGV[i + 1], now + tonumber(ARGV[i + 2]))
  end
end

-- take: token, lease, deaths, "long" or "short", per user (0: no limit), profile, limit, ...
-- Answers the lane's work; else the milliseconds until something is due, or nothing.
function calls.take()
  local token, lease, deaths, long = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == 'long'
  local mine = redis.call('HGET', TOKENS, token)
  if mine then return redis.call('HGET', HELD, mine) end
  probe()
  give_up(lease, deaths)
  ripen()
  local per_user, per_profile = tonumber(ARGV[6]), {}
  for i = 7, #ARGV, 2 do per_profile[ARGV[i]] = tonumber(ARGV[i + 1]) end
  local chosen = first(SHORT, per_user, per_profile)
  if long then
    local other = first(LONG, per_user, per_profile)
    if other and (not chosen or other.standing < chosen.standing) then chosen = other end
  end
  if not chosen then
    local due = redis.call('ZRANGE', LATER, 0, 0, 'WITHSCORES')[2]
    local lost = redis.call('ZRANGE', TAKEN, 0, 0, 'WITHSCORES')[2]
    local soonest = math.min(tonumber(due or math.huge), tonumber(lost or math.huge))
    if soonest == math.huge then return nil end
    return math.max(1, soonest - now)
  end
  redis.call('ZREM', chosen.told.length == 'short' and SHORT or LONG, chosen.lane)
  redis.call('HSET', HELD, chosen.lane, chosen.work)
  redis.call('HSET', OWNER, chosen.lane, token)
  redis.call('HSET', TOKENS, token, chosen.lane)
  redis.call('ZADD', TAKEN, text(now + lease), chosen.lane)
  redis.call('HINCRBY', RUNNING, 'u:' .. chosen.told.user, 1)
  redis.call('HINCRBY', RUNNING, 'p:' .. chosen.told.profile, 1)
  local turn = math.max(number(redis.call('HGET', META, 'turn')), math.floor(chosen.standing / ARRIVALS))
  redis.call('HSET', META, 'turn', text(turn))
  redis.call('ZREMRANGEBYSCORE', TAGS, '-inf', text(turn))
  return chosen.work
end

-- done: lane, token[, work, delay]
function calls.done()
  local lane = ARGV[2]
  if redis.call('HGET', OWNER, lane) ~= ARGV[3] then return end
  ripen()
  local due, work = release(lane), redis.call('HGET', WORK, lane)
  redis.call('HDEL', WORK, lane)
  redis.call('HDEL', DEATHS, lane)
  if ARGV[4] then
    stand(lane, ARGV[4], now + tonumber(ARGV[5]))
  elseif due then
    stand(lane, work, due)
  end
end

-- beat: lease, lane, token, ...
function calls.beat()
  probe()
  local until_then = text(now + tonumber(ARGV[2]))
  for i = 3, #ARGV, 2 do
    if redis.call('HGET', OWNER, ARGV[i]) == ARGV[i + 1] then
      redis.call('ZADD', TAKEN, 'XX', until_then, ARGV[i])
    end
  end
end

-- leave: token. What it holds is ready again.
function calls.leave()
  local lane = redis.call('HGET', TOKENS, ARGV[2])
  if not lane then return end
  release(lane)
  enter(lane, redis.call('HGET', WORK, lane), now)
end

-- arrive: worker, epoch. What earlier starts of this worker hold is ready again.
function calls.arrive()
  local worker, present = ARGV[2] .. ':', ARGV[2] .. ':' .. ARGV[3] .. ':'
  local owners = redis.call('HGETALL', OWNER)
  for i = 1, #owners, 2 do
    local token = owners[i + 1]
    if token:sub(1, #worker) == worker and token:sub(1, #present) ~= present then
      release(owners[i])
      enter(owners[i], redis.call('HGET', WORK, owners[i]), now)
    end
  end
end

-- place: lane
function calls.place()
  return redis.call('ZRANK', SHORT, ARGV[2]) or redis.call('ZRANK', LONG, ARGV[2])
end

-- dead
function calls.dead() return redis.call('SMEMBERS', DEAD) end

-- forgive: lane
function calls.forgive()
  redis.call('SREM', DEAD, ARGV[2])
  redis.call('HDEL', DEATHS, ARGV[2])
end

return calls[ARGV[1]]()
