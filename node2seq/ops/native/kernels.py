"""The loops that numba compiles: over rows ``first`` to ``last - 1``, each row by itself.

All in one file: numba's cache notices when the file of a kernel changes, and no other.
"""

# What an intrinsic is called with is not what it is defined with.
# pyright: reportCallIssue=false

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Sums may be regrouped and fused, so that they fill vector registers. NaN, infinity and signed zero keep
# their meaning, which fastmath=True would give away.
_REGROUP = {"reassoc", "contract"}
# A long sum is cut into parts: it then loses no more digits than a pairwise one.
_LONGEST_SUM = 64
# So many keys are sorted by counting, for each, the smaller ones: a loop without branches.
_COUNTED = 96
# Rows lie anywhere in memory: they are asked for so many entries before they are needed.
_AHEAD = 8
_CACHE_LINE = 64


def _compiled(function: Any) -> Any:
    """Compiles on the first call, and keeps the machine code for later processes if it may write."""
    options: dict[str, Any] = {"nogil": True, "fastmath": _REGROUP}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's own can be written
        return njit(**options)(function)


def _inlined(function: Any) -> Any:
    """For what runs in the innermost loops: a call would count references to its arrays."""
    return njit(inline="always")(function)


# Memory ########################################################################


@intrinsic
def _prefetch(_context: Any, _address: Any) -> Any:
    """Has the processor fetch the cache line at an address; does nothing else, and never fails."""

    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        address = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(function, [address, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(types.intp), build


@_inlined
def _copy(to: Any, values: Any) -> None:
    for c in range(to.size):
        to[c] = values[c]


@_inlined
def _fetch(table: Any, row: Any) -> None:
    """Asks for a row of a table."""
    start = table.ctypes.data + row * table.strides[0]
    for place in range(start, start + table.strides[0], _CACHE_LINE):
        _prefetch(place)


# Sorting #######################################################################


@_compiled
def _to_keys(score: Any, keys: Any) -> None:
    """Whole numbers that ascend where scores descend; NaN comes first, and −0.0 equals +0.0."""
    bits = score.view(keys.dtype)
    sign = 8 * keys.itemsize - 1
    positive = (1 << sign) - 1
    for e in range(keys.size):
        score[e] += 0  # turns −0.0 into +0.0
    for e in range(keys.size):
        ascending = bits[e] ^ ((bits[e] >> sign) & positive)
        keys[e] = ~ascending if score[e] == score[e] else ~positive


@_compiled
def _to_scores(keys: Any, score: Any) -> None:
    """The scores that keys were made of, to the last bit."""
    bits = score.view(keys.dtype)
    sign = 8 * keys.itemsize - 1
    positive = (1 << sign) - 1
    for e in range(keys.size):
        ascending = ~keys[e]
        bits[e] = ascending ^ ((ascending >> sign) & positive)


@_compiled
def _count_smaller(keys: Any, place: Any) -> Any:
    """The number of smaller keys, for each key; whether all of them differ."""
    total = 0
    for i in range(keys.size):
        key, smaller = keys[i], 0
        for j in range(keys.size):
            smaller += keys[j] < key
        place[i] = smaller
        total += smaller
    return total == keys.size * (keys.size - 1) // 2


@_compiled
def _sort_few(keys: Any, items: Any, spare_keys: Any, spare_items: Any, place: Any) -> None:
    if not _count_smaller(keys, place):
        for i in range(keys.size):
            for j in range(i):
                place[i] += keys[j] == keys[i]
    for i in range(keys.size):
        spare_keys[place[i]] = keys[i]
        spare_items[place[i]] = items[i]
    _copy(keys, spare_keys)
    _copy(items, spare_items)


@_compiled
def _sort_many(keys: Any, items: Any, spare_keys: Any, spare_items: Any) -> None:
    """By one digit of eight bits after the other, the last first."""
    ends = np.empty(256, np.int64)
    passes = 0
    for digit in range(keys.itemsize):
        shift = 8 * digit
        flip = 128 if digit == keys.itemsize - 1 else 0  # negative keys go before positive ones
        for value in range(256):
            ends[value] = 0
        for e in range(keys.size):
            ends[((keys[e] >> shift) & 255) ^ flip] += 1
        if ends[((keys[0] >> shift) & 255) ^ flip] == keys.size:
            continue  # all the same
        total = 0
        for value in range(256):
            total += ends[value]
            ends[value] = total - ends[value]
        for e in range(keys.size):
            value = ((keys[e] >> shift) & 255) ^ flip
            at = ends[value]
            spare_keys[at] = keys[e]
            spare_items[at] = items[e]
            ends[value] = at + 1
        keys, items, spare_keys, spare_items = spare_keys, spare_items, keys, items
        passes += 1
    if passes % 2:  # the sorted ones lie where the spare ones were
        _copy(spare_keys, keys)
        _copy(spare_items, items)


@_compiled
def _sort(keys: Any, items: Any, spare_keys: Any, spare_items: Any, place: Any) -> None:
    """A stable sort of keys, ascending, and of the items that belong to them, in place."""
    if keys.size <= _COUNTED:
        _sort_few(keys, items, spare_keys, spare_items, place)
    else:
        _sort_many(keys, items, spare_keys, spare_items)


# Equations 2 and 3 #############################################################


@_inlined
def _dot(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for c in range(a.size):
        total += a[c] * b[c]
    return total


@_compiled
def own_keys(first: Any, last: Any, key: Any, out: Any) -> None:
    """Each node's product with itself, as a key: where scores tie, the larger one goes first."""
    own = np.empty(last - first, key.dtype)
    for j in range(first, last):
        own[j - first] = _dot(key[j], key[j])
    _to_keys(own, out[first:last])


@_compiled
def _settle_ties(
    keys: Any,
    items: Any,
    own: Any,
    sources: Any,
    run_keys: Any,
    spare_keys: Any,
    spare_items: Any,
    place: Any,
) -> None:
    """Orders equal keys by their own score, descending; the sort before left them by ascending id."""
    start = 0
    while start < keys.size:
        end = start + 1
        while end < keys.size and keys[end] == keys[start]:
            end += 1
        count = end - start
        if count > 1:
            for e in range(count):
                run_keys[e] = own[sources[items[start + e]]]
            _sort(run_keys[:count], items[start:end], spare_keys[:count], spare_items[:count], place)
        start = end


@_compiled
def arrange(
    first: Any,
    last: Any,
    query: Any,
    key: Any,
    own: Any,
    ptr: Any,
    index: Any,
    longest: Any,
    score: Any,
    ranked: Any,
    place: Any,
) -> None:
    """Scores each target's sources and sorts them: the score and the place of each entry, who stands where.

    Sources ascend within a row, so that among equals the smaller id comes first by itself.
    """
    keys, spare_keys = np.empty(longest, own.dtype), np.empty(longest, own.dtype)
    run_keys = np.empty(longest, own.dtype)
    items, spare_items = np.empty(longest, place.dtype), np.empty(longest, place.dtype)
    for i in range(first, last):
        start, end = ptr[i], ptr[i + 1]
        count = end - start
        sources, at = index[start:end], place[start:end]
        for e in range(start, end):
            _fetch(key, index[min(e + _AHEAD, index.size - 1)])
            score[e] = _dot(query[i], key[index[e]])
        _to_keys(score[start:end], keys[:count])
        if count <= _COUNTED and _count_smaller(keys[:count], at):
            for e in range(count):
                ranked[start + at[e]] = sources[e]
            continue
        for e in range(count):
            items[e] = e
        _sort(keys[:count], items[:count], spare_keys[:count], spare_items[:count], at)
        _settle_ties(keys[:count], items[:count], own, sources, run_keys, spare_keys, spare_items, at)
        for p in range(count):
            at[items[p]] = p
            ranked[start + p] = sources[items[p]]


@_compiled
def transpose(
    _first: Any, _last: Any, ptr: Any, index: Any, source_ptr: Any, target: Any, entry: Any
) -> None:
    """The entries of each source node, in their order: where they start, their targets and themselves.

    Sorting all entries is one piece of work, which cannot be cut.
    """
    for j in range(source_ptr.size):
        source_ptr[j] = 0
    for e in range(index.size):
        source_ptr[index[e] + 1] += 1
    for j in range(1, source_ptr.size):
        source_ptr[j] += source_ptr[j - 1]
    free = source_ptr[:-1].copy()
    for i in range(ptr.size - 1):
        for e in range(ptr[i], ptr[i + 1]):
            at = free[index[e]]
            target[at] = i
            entry[at] = e
            free[index[e]] = at + 1


# Equation 4 ####################################################################


@_inlined
def _goes_before(key: Any, node: Any, other_key: Any, other: Any, own: Any) -> Any:
    if key != other_key:
        return key < other_key
    if own[node] != own[other]:
        return own[node] < own[other]
    return node < other


@_compiled
def _sift_down(keys: Any, nodes: Any, size: Any, own: Any) -> None:
    """Brings what was put at the root of a heap to its place; who goes last stands at the root."""
    key, node, hole = keys[0], nodes[0], 0
    while 2 * hole + 1 < size:
        child = 2 * hole + 1
        if child + 1 < size and _goes_before(
            keys[child], nodes[child], keys[child + 1], nodes[child + 1], own
        ):
            child += 1
        if not _goes_before(key, node, keys[child], nodes[child], own):
            break
        keys[hole], nodes[hole] = keys[child], nodes[child]
        hole = child
    keys[hole], nodes[hole] = key, node


@_compiled
def _sift_up(keys: Any, nodes: Any, hole: Any, own: Any) -> None:
    """Brings what was put at the end of a heap to its place."""
    key, node = keys[hole], nodes[hole]
    while hole > 0:
        parent = (hole - 1) // 2
        if not _goes_before(keys[parent], nodes[parent], key, node, own):
            break
        keys[hole], nodes[hole] = keys[parent], nodes[parent]
        hole = parent
    keys[hole], nodes[hole] = key, node


@_compiled
def _walk(i: Any, hops: Any, ptr: Any, index: Any, stamp: Any, queue: Any) -> Any:
    """Lists who has a path of at most ``hops`` edges to i; where those beyond one edge begin and end.

    A node is seen in this walk if its stamp is i, so that nothing has to be wiped between walks.
    """
    stamp[i] = i
    tail, level, near = 0, 0, 0
    for e in range(ptr[i], ptr[i + 1]):
        queue[tail] = index[e]
        tail += stamp[index[e]] != i
        stamp[index[e]] = i
    near = tail
    for _ in range(1, hops):
        level_end = tail
        for place in range(level, level_end):
            node = queue[place]
            for e in range(ptr[node], ptr[node + 1]):
                queue[tail] = index[e]
                tail += stamp[index[e]] != i
                stamp[index[e]] = i
        level = level_end
    return near, tail


@_compiled
def select(
    first: Any,
    last: Any,
    query: Any,
    key: Any,
    own: Any,
    ptr: Any,
    index: Any,
    longest: Any,
    hops: Any,
    threshold: Any,
    joint: Any,
    out_node: Any,
    out_score: Any,
    out_entry: Any,
) -> None:
    """Weak neighbours of each target make room for the best of those further away; all of them are ranked."""
    score, far_score = np.empty(longest, query.dtype), np.empty(longest, query.dtype)
    keys, spare_keys = np.empty(longest, own.dtype), np.empty(longest, own.dtype)
    run_keys, far_keys = np.empty(longest, own.dtype), np.empty(longest, own.dtype)
    items, spare_items = np.empty(longest, index.dtype), np.empty(longest, index.dtype)
    place, far = np.empty(longest, index.dtype), np.empty(longest, index.dtype)
    stamp, queue = np.full(key.shape[0], -1, index.dtype), np.empty(key.shape[0] + 1, index.dtype)
    one_score, one_key, lowest = np.empty(1, query.dtype), np.empty(1, own.dtype), np.empty(1, query.dtype)
    for i in range(first, last):
        start, end = ptr[i], ptr[i + 1]
        count = end - start
        sources = index[start:end]
        wanted = 0
        for e in range(count):
            score[e] = _dot(query[i], key[sources[e]])
            wanted += not score[e] > threshold[i]
            items[e] = e
        _to_keys(score[:count], keys[:count])
        _sort(keys[:count], items[:count], spare_keys[:count], spare_items[:count], place)
        _settle_ties(keys[:count], items[:count], own, sources, run_keys, spare_keys, spare_items, place)

        # The best of those further away, as many as there is room for, in a heap.
        found = 0
        if wanted > 0:
            near, reached = _walk(i, hops, ptr, index, stamp, queue)
            for at in range(near, reached):
                _fetch(key, queue[min(at + _AHEAD, reached - 1)])
                node = queue[at]
                one_score[0] = _dot(query[i], key[node])
                if found == wanted and one_score[0] < lowest[0]:
                    continue  # by far the most
                _to_keys(one_score, one_key)
                if found < wanted:
                    far_keys[found], far[found] = one_key[0], node
                    _sift_up(far_keys, far, found, own)
                    found += 1
                elif _goes_before(one_key[0], node, far_keys[0], far[0], own):
                    far_keys[0], far[0] = one_key[0], node
                    _sift_down(far_keys, far, found, own)
                _to_scores(far_keys[:1], lowest)
        # Who goes last leaves a heap first.
        for size in range(found - 1, 0, -1):
            last_key, last_node = far_keys[0], far[0]
            far_keys[0], far[0] = far_keys[size], far[size]
            _sift_down(far_keys, far, size, own)
            far_keys[size], far[size] = last_key, last_node
        _to_scores(far_keys[:found], far_score[:found])

        # Where they are too few, the best of the dropped stay; all in their order, or locals first.
        room = wanted - found
        p, f = 0, 0
        for e in range(count):
            item = items[e]
            if not score[item] > threshold[i]:
                if room == 0:
                    continue
                room -= 1
            while joint and f < found and _goes_before(far_keys[f], far[f], keys[e], sources[item], own):
                out_node[start + p], out_score[start + p], out_entry[start + p] = far[f], far_score[f], -1
                f += 1
                p += 1
            out_node[start + p], out_score[start + p] = sources[item], score[item]
            out_entry[start + p] = start + item
            p += 1
        for rest in range(f, found):
            out_node[start + p], out_score[start + p], out_entry[start + p] = far[rest], far_score[rest], -1
            p += 1


# Equations 5 and 6, the largest window #########################################


@_inlined
def _fetch_taps(table: Any, node: Any, q: Any, windows: Any) -> None:
    """Asks for what a node at position q adds to windows: the taps from q − windows + 1 to q."""
    start = table.ctypes.data + node * table.strides[0]
    low, high = max(0, q - windows + 1), min(table.shape[1], q + 1)
    for place in range(start + low * table.strides[1], start + high * table.strides[1], _CACHE_LINE):
        _prefetch(place)


@_compiled
def window_max(first: Any, last: Any, projected: Any, ptr: Any, nodes: Any, out: Any, winner: Any) -> None:
    """The largest window sum of each channel, and the first window that reaches it.

    Entry by entry, so that all that is needed of a node is read at once: at position q it stands under tap t
    of the window that begins at q − t. The sums of the windows that are not yet complete lie in a ring.
    """
    kernel_size, channels = projected.shape[1], projected.shape[2]
    ring = np.empty((kernel_size, channels), projected.dtype)
    best, at = np.empty(channels, projected.dtype), np.empty(channels, winner.dtype)
    for i in range(first, last):
        start, length = ptr[i], ptr[i + 1] - ptr[i]
        windows = max(length - kernel_size + 1, 1)
        if i + 1 < last:
            following = ptr[i + 2] - ptr[i + 1]
            for q in range(min(following, _AHEAD)):
                _fetch_taps(projected, nodes[ptr[i + 1] + q], q, max(following - kernel_size + 1, 1))
        for c in range(channels):
            best[c] = 0
            at[c] = 0
        for q in range(length):
            if q + _AHEAD < length:
                _fetch_taps(projected, nodes[start + q + _AHEAD], q + _AHEAD, windows)
            node = nodes[start + q]
            low = max(0, q - windows + 1)
            slot = (q - low) % kernel_size
            if low == 0:  # a window begins
                for c in range(channels):
                    ring[slot, c] = projected[node, 0, c]
                low = 1
                slot = slot - 1 if slot > 0 else kernel_size - 1
            for t in range(low, min(kernel_size, q + 1)):
                for c in range(channels):
                    ring[slot, c] += projected[node, t, c]
                slot = slot - 1 if slot > 0 else kernel_size - 1
            p = q - kernel_size + 1
            if p > 0:
                slot = p % kernel_size
                for c in range(channels):
                    old, new = best[c], ring[slot, c]
                    # NaN beats every number, and the first one stays: it has to be seen in the output.
                    better = (not new <= old) & (old == old)
                    best[c] = new if better else old
                    at[c] = p if better else at[c]
            elif p == 0 or q == length - 1:
                for c in range(channels):
                    best[c] = ring[0, c]
        for c in range(channels):
            out[i, c] = best[c]
            winner[i, c] = at[c]


@_compiled
def window_max_scatter(
    first: Any, last: Any, grad: Any, winner: Any, ptr: Any, nodes: Any, block: Any, out: Any
) -> None:
    """Adds each channel's gradient to the rows under its winner, for blocks of channels."""
    kernel_size, channels = out.shape[1], out.shape[2]
    low, high = first * block, min(last * block, channels)
    for i in range(ptr.size - 1):
        end = ptr[i + 1]
        for c in range(low, high):
            start = ptr[i] + winner[i, c]
            for t in range(min(kernel_size, end - start)):
                out[nodes[start + t], t, c] += grad[i, c]


@_compiled
def window_max_gather(
    first: Any,
    last: Any,
    grad: Any,
    winner: Any,
    ptr: Any,
    source_ptr: Any,
    target: Any,
    entry: Any,
    place: Any,
    out: Any,
) -> None:
    """The same by source: an entry at position q stood under tap t of the window that began at q − t."""
    kernel_size, channels = out.shape[1], out.shape[2]
    zero = grad.dtype.type(0)
    for j in range(first, last):
        for t in range(kernel_size):
            for c in range(channels):
                out[j, t, c] = 0
        for s in range(source_ptr[j], source_ptr[j + 1]):
            soon = target[min(s + _AHEAD, target.size - 1)]
            _fetch(grad, soon)
            _fetch(winner, soon)
            i, q = target[s], place[entry[s]]
            windows = max(ptr[i + 1] - ptr[i] - kernel_size + 1, 1)
            for t in range(max(0, q - windows + 1), min(kernel_size, q + 1)):
                for c in range(channels):
                    out[j, t, c] += grad[i, c] if winner[i, c] == q - t else zero


# Equations 5 and 6, the sum over windows #######################################


@_compiled
def window_sum(first: Any, last: Any, x: Any, ptr: Any, nodes: Any, out: Any) -> None:
    """What each tap meets over all windows: position q lies under the taps from q − windows + 1 to q.

    What lies under every tap, the core, is summed once; the first and last few are added one by one.
    """
    kernel_size, channels = out.shape[1], out.shape[2]
    part, core = np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    for i in range(first, last):
        start, length = ptr[i], ptr[i + 1] - ptr[i]
        windows = max(length - kernel_size + 1, 1)
        for e in range(ptr[i + 1], min(ptr[i + 1] + _AHEAD, ptr[last])):
            _fetch(x, nodes[e])
        for c in range(channels):
            core[c] = 0
        core_end = min(windows, length)  # an empty sequence has a window, but no entry
        for begin in range(kernel_size - 1, core_end, _LONGEST_SUM):
            for c in range(channels):
                part[c] = 0
            for q in range(begin, min(begin + _LONGEST_SUM, core_end)):
                _fetch(x, nodes[min(start + q + _AHEAD, nodes.size - 1)])
                node = nodes[start + q]
                for c in range(channels):
                    part[c] += x[node, c]
            for c in range(channels):
                core[c] += part[c]
        for t in range(kernel_size):
            for c in range(channels):
                out[i, t, c] = core[c]
        for q in range(min(kernel_size - 1, length)):
            node = nodes[start + q]
            for t in range(max(0, q - windows + 1), q + 1):
                for c in range(channels):
                    out[i, t, c] += x[node, c]
        for q in range(max(windows, kernel_size - 1), length):
            node = nodes[start + q]
            for t in range(q - windows + 1, kernel_size):
                for c in range(channels):
                    out[i, t, c] += x[node, c]


@_compiled
def window_sum_gather(
    first: Any,
    last: Any,
    prefix: Any,
    ptr: Any,
    source_ptr: Any,
    target: Any,
    entry: Any,
    place: Any,
    out: Any,
) -> None:
    """The gradient of each source's rows: for each entry, the difference of two sums over taps."""
    kernel_size, channels = prefix.shape[1], prefix.shape[2]
    part = np.empty(channels, prefix.dtype)
    for j in range(first, last):
        for c in range(channels):
            out[j, c] = 0
        for begin in range(source_ptr[j], source_ptr[j + 1], _LONGEST_SUM):
            for c in range(channels):
                part[c] = 0
            for s in range(begin, min(begin + _LONGEST_SUM, source_ptr[j + 1])):
                soon = min(s + _AHEAD, target.size - 1)
                _fetch_taps(prefix, target[soon], min(place[entry[soon]], kernel_size - 1), 1)
                i, q = target[s], place[entry[s]]
                windows = max(ptr[i + 1] - ptr[i] - kernel_size + 1, 1)
                upper = min(q, kernel_size - 1)
                for c in range(channels):
                    part[c] += prefix[i, upper, c]
                if q >= windows:
                    for c in range(channels):
                        part[c] -= prefix[i, q - windows, c]
            for c in range(channels):
                out[j, c] += part[c]
