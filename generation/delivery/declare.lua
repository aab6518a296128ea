-- Make an epoch the only one that may write a job's stream, and give it what the stream holds.
--
-- KEYS  the stream, the owner's hash
-- ARGV  epoch; the origin of the caller's entries, '0' to go on with the stream's; seconds to live
-- Returns {origin, entries}, or {-1} if a newer epoch owns the job.
-- A stream of another origin than the caller's, or without one, is dropped: its numbering is not the caller's.
local stream, owner, epoch = KEYS[1], KEYS[2], tonumber(ARGV[1])
if tonumber(redis.call('HGET', owner, 'epoch') or 0) > epoch then
  return {-1}
end
local origin = tonumber(redis.call('HGET', owner, 'origin') or 0)
local wanted = tonumber(ARGV[2])
if wanted > 0 and wanted ~= origin then
  redis.call('DEL', stream)
  origin = wanted
elseif wanted == 0 and (origin == 0 or redis.call('EXISTS', stream) == 0) then
  redis.call('DEL', stream)
  origin = epoch
end
redis.call('HSET', owner, 'epoch', ARGV[1], 'origin', origin)
redis.call('EXPIRE', owner, ARGV[3])
if redis.call('EXISTS', stream) == 1 then
  redis.call('EXPIRE', stream, ARGV[3])
end
return {origin, redis.call('XRANGE', stream, '-', '+')}
