-- Append each job's new entries to its stream and publish them to its channel group, strictly in order.
--
-- KEYS  per job: the stream, the owner's hash (epoch, origin)
-- ARGV  seconds to live while running, and after the end marker; then
--       per job: epoch, channel, number of entries; per entry: seq, ids, text, end ('' or the end's frame), message
-- Returns per job the newest seq of its stream now; -1: a newer epoch owns the job, nothing was written;
--       -2: this epoch isn't declared here (an emptied Redis), nothing was written.
local at, answers = 3, {}
for job = 1, #KEYS / 2 do
  local stream, owner = KEYS[2 * job - 1], KEYS[2 * job]
  local epoch, channel, count = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  local declared = tonumber(redis.call('HGET', owner, 'epoch') or 0)
  if declared > epoch then
    answers[job] = -1
  elseif declared < epoch then
    answers[job] = -2
  else
    local last, ended = 0, false
    local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    if newest then
      last = tonumber(string.match(newest[1], '^(%d+)'))
      for field = 1, #newest[2], 2 do
        ended = ended or newest[2][field] == 'e'
      end
    end
    local first = last
    for entry = 0, count - 1 do
      local e = at + 5 * entry
      -- A lower seq is here from an earlier try; a higher one has a gap before it, which the writer must fill first.
      if tonumber(ARGV[e]) == last + 1 and not ended then
        if ARGV[e + 3] == '' then
          redis.call('XADD', stream, ARGV[e] .. '-0', 'i', ARGV[e + 1], 't', ARGV[e + 2])
        else
          redis.call('XADD', stream, ARGV[e] .. '-0', 'i', ARGV[e + 1], 't', ARGV[e + 2], 'e', ARGV[e + 3])
          ended = true
        end
        redis.call('PUBLISH', channel, ARGV[e + 4])
        last = last + 1
      end
    end
    if ended then
      redis.call('EXPIRE', stream, ARGV[2])
      redis.call('EXPIRE', owner, ARGV[2])
    elseif first == 0 or math.floor(first / 64) < math.floor(last / 64) then
      redis.call('EXPIRE', stream, ARGV[1])
      redis.call('EXPIRE', owner, ARGV[1])
    end
    answers[job] = last
  end
  at = at + 5 * count
end
return answers
