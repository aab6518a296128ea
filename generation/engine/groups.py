"""Parts the decoding rows of a step into groups that one attention call reads. Knows slots and lengths only."""

# What a further call costs on a CPU, in positions of one row that could be read meanwhile.
_CALL = 128


def length_groups(slots: list[int], lengths: list[int]) -> list[range]:
    """Rows, in the order of their slots, as ranges of neighbours; the parting of least cost.

    A group is read in place, each of its rows to the length of the longest, so its slots must adjoin. One long row
    among short ones makes its own group; rows of about one length share theirs.
    """
    least, starts = [0], [0]  # of the first n rows: what they cost, and where their last group starts
    for end in range(1, len(slots) + 1):
        longest, best, best_start = 0, -1, 0
        for start in range(end - 1, -1, -1):
            if start < end - 1 and slots[start] + 1 != slots[start + 1]:
                break
            longest = max(longest, lengths[start])
            cost = least[start] + (end - start) * longest + _CALL
            if best < 0 or cost <= best:
                best, best_start = cost, start
        least.append(best)
        starts.append(best_start)
    groups: list[range] = []
    end = len(slots)
    while end:
        groups.append(range(starts[end], end))
        end = starts[end]
    return groups[::-1]
