"""The loops that numba compiles: over rows ``first`` to ``last - 1``, each row by itself.

All in one file: numba's cache notices when the file of a kernel changes, and no other.
"""

# What an intrinsic is called with is not what it is defined with.
# pyright: reportCallIssue=false

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from node2seq.ops import dropout, sampling

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
# A table of so many bytes is near anyway.
_NEAR_BYTES = 2**22
# What a product works out at a time fills the registers: so many rows, vectors in a row, bytes in a vector.
_HAS_LONG_VECTORS = binding.get_host_cpu_features().get("avx512f", False)
_TILE_ROWS, _TILE_VECTORS, _VECTOR = (4, 4, 64) if _HAS_LONG_VECTORS else (6, 2, 32)
_TILE_BYTES = _TILE_VECTORS * _VECTOR
# So many rows of a product are worked out before the next columns, and stay in the cache for them.
_BLOCK_ROWS = 64
# Candidates lie further apart than neighbours do; so many are scored before there may be too many to hold.
_FAR_AHEAD = 16
_BLOCK = 32


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


@intrinsic
def _lowest_bit(_context: Any, _word: Any) -> Any:
    """The place of the lowest bit of a word that is not zero."""

    def build(_compiler: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), build


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


# Products ######################################################################

# Where graphs are small, a library's product is called and set up for longer than it multiplies; and the one
# that PyTorch comes with uses half the width of some processors' vectors: 110 against 280 GFLOP/s on a Zen 5.


def _tile(rows: int, vectors: int) -> Any:
    """An intrinsic for one tile of a product: so many rows of so many vectors."""

    @intrinsic
    def multiply_tile(
        _context: Any,
        a: Any,
        _a_at: Any,
        _a_row: Any,
        _a_step: Any,
        b: Any,
        _b_at: Any,
        _b_step: Any,
        _depth: Any,
        out: Any,
        _out_at: Any,
        _out_row: Any,
        _adds: Any,
    ) -> Any:
        """Row r is the sum over k of ``a[a_at + r * a_row + k * a_step]`` times the row of ``b`` that begins
        at ``b_at + k * b_step``, one k after the other. It is put into ``out``, or added to what is there.
        """
        three = (types.intp,) * 3
        signature = types.void(a, *three, b, *three, out, types.intp, types.intp, types.boolean)

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, a_at, a_row, a_step, b, b_at, b_step, depth, out, out_at, out_row, adds = arguments
            kinds = signature.args
            a, b, out = (
                context.make_array(kind)(context, builder, array).data
                for kind, array in ((kinds[0], a), (kinds[4], b), (kinds[8], out))
            )
            size = kinds[0].dtype.bitwidth // 8
            vector = ir.VectorType(context.get_value_type(kinds[0].dtype), _VECTOR // size)
            nothing, number = ir.Constant(vector, ir.Undefined), ir.IntType(64)
            spread = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)

            def at(array: Any, start: Any, step: Any, count: Any, v: int = 0) -> Any:
                place = builder.add(builder.add(start, builder.mul(step, count)), number(v * vector.count))
                return builder.gep(array, [place])

            def vector_at(*place: Any) -> Any:
                return builder.bitcast(at(*place), vector.as_pointer())

            tile = [(r, v) for r in range(rows) for v in range(vectors)]
            zero = ir.Constant(vector, [0.0] * vector.count)
            sums = {place: cgutils.alloca_once(builder, vector) for place in tile}
            for place in tile:
                builder.store(zero, sums[place])
            with cgutils.for_range(builder, depth) as loop:
                row = [
                    builder.load(vector_at(b, b_at, b_step, loop.index, v), align=size)
                    for v in range(vectors)
                ]
                for r in range(rows):
                    start = builder.add(a_at, builder.mul(a_row, number(r)))
                    factor = builder.load(at(a, start, a_step, loop.index))
                    factor = builder.insert_element(nothing, factor, ir.IntType(32)(0))
                    factor = builder.shuffle_vector(factor, nothing, spread)
                    for v in range(vectors):
                        product = builder.fmul(factor, row[v], flags=("contract",))
                        total = builder.fadd(builder.load(sums[r, v]), product, flags=("contract",))
                        builder.store(total, sums[r, v])
            with builder.if_then(adds):
                for r, v in tile:
                    before = builder.load(vector_at(out, out_at, out_row, number(r), v), align=size)
                    builder.store(builder.fadd(before, builder.load(sums[r, v])), sums[r, v])
            for r, v in tile:
                builder.store(
                    builder.load(sums[r, v]), vector_at(out, out_at, out_row, number(r), v), align=size
                )
            return context.get_dummy_value()

        return signature, build

    return multiply_tile


_multiply_tile, _multiply_row = _tile(_TILE_ROWS, _TILE_VECTORS), _tile(1, _TILE_VECTORS)
_multiply_strip, _multiply_vector = _tile(_TILE_ROWS, 1), _tile(1, 1)


@_compiled
def _multiply(
    a: Any,
    a_at: Any,
    a_row: Any,
    a_step: Any,
    rows: Any,
    depth: Any,
    b: Any,
    b_at: Any,
    columns: Any,
    out: Any,
    out_at: Any,
    adds: Any,
) -> None:
    """Some rows and all columns of a product; see :func:`_tile`. ``b`` has whole vectors in each row."""
    wide, lanes, b_step, out_row = _TILE_BYTES // b.itemsize, _VECTOR // b.itemsize, b.shape[1], out.shape[1]
    whole, whole_columns = rows - rows % _TILE_ROWS, columns - columns % wide
    for n in range(0, whole_columns, wide):
        for i in range(0, whole, _TILE_ROWS):
            to = out_at + i * out_row + n
            _multiply_tile(
                a, a_at + i * a_row, a_row, a_step, b, b_at + n, b_step, depth, out, to, out_row, adds
            )
        for i in range(whole, rows):
            to = out_at + i * out_row + n
            _multiply_row(
                a, a_at + i * a_row, a_row, a_step, b, b_at + n, b_step, depth, out, to, out_row, adds
            )
    if whole_columns == columns:
        return
    spare, flat = np.empty((_TILE_ROWS, lanes), out.dtype), out.reshape(out.size)
    for n in range(whole_columns, columns, lanes):
        for i in range(0, rows, _TILE_ROWS):
            if i < whole:
                _multiply_strip(
                    a, a_at + i * a_row, a_row, a_step, b, b_at + n, b_step, depth, spare, 0, lanes, False
                )
            else:
                for r in range(rows - whole):
                    start = a_at + (i + r) * a_row
                    _multiply_vector(
                        a, start, a_row, a_step, b, b_at + n, b_step, depth, spare, r * lanes, lanes, False
                    )
            for r in range(min(_TILE_ROWS, rows - i)):
                to = out_at + (i + r) * out_row + n
                for c in range(min(lanes, columns - n)):
                    flat[to + c] = flat[to + c] + spare[r, c] if adds else spare[r, c]


@_inlined
def _room(columns: Any, like: Any) -> Any:
    """The length of rows of so many columns, filled up to whole vectors; another line keeps them from
    falling into the same few places of a cache.
    """
    lanes = _VECTOR // like.itemsize
    return -(-columns // lanes) * lanes + _CACHE_LINE // like.itemsize


# How taps [K, C, D] and the weight of the own rows, [D, C], stand in the matrix of one product.
BESIDE = 0  # [C, (K + 1) * D]: a row for each tap and for itself
BELOW = 1  # [(K + 1) * C, D]: what each tap has met, and the own row
BACK = 2  # [(K + 1) * D, C]: the gradients of either


@_inlined
def _fill_rows(taps: Any, root: Any, run: Any, form: Any, rows: Any) -> None:
    """Copies the taps and the root of a run into rows with room behind them."""
    _, kernel_size, depth, channels = taps.shape
    across, down = (channels, 0) if form == BESIDE else (0, depth)
    if form == BACK:
        for t in range(kernel_size):
            for n in range(channels):
                for k in range(depth):
                    rows[t * channels + n, k] = taps[run, t, k, n]
        for n in range(root.shape[1] if root.shape[0] > 0 else 0):
            _copy(rows[kernel_size * channels + n, :depth], root[run, n])
        return
    for t in range(kernel_size):
        for k in range(depth):
            _copy(rows[t * down + k, t * across : t * across + channels], taps[run, t, k])
    for k in range(depth if root.shape[0] > 0 else 0):
        for n in range(channels):
            rows[kernel_size * down + k, kernel_size * across + n] = root[run, n, k]


@_compiled
def multiply(first: Any, last: Any, a: Any, taps: Any, root: Any, form: Any, longest: Any, out: Any) -> None:
    """Each run's rows times its own taps, [R, K, C, D], and root, [R, D, C] or none: one product.

    Sums of more than ``longest`` terms are cut into parts.
    """
    depth, columns = a.shape[1], out.shape[1]
    step = depth if depth <= longest else _LONGEST_SUM
    per_run = out.shape[0] // taps.shape[0]
    b = np.empty((depth, _room(columns, out)), out.dtype)
    run, done = first // max(per_run, 1), first
    while done < last:
        end = min(last, (run + 1) * per_run)
        _fill_rows(taps, root, run, form, b)
        for begin in range(done, end, _BLOCK_ROWS):
            rows, to = min(_BLOCK_ROWS, end - begin), begin * columns
            for k in range(0, depth, step):
                start, part, at = begin * depth + k, min(step, depth - k), k * b.shape[1]
                _multiply(a, start, depth, 1, rows, part, b, at, columns, out, to, k > 0)
        run, done = run + 1, end


@_compiled
def multiply_transposed(first: Any, last: Any, a: Any, b: Any, out: Any) -> None:
    """The sum over rows i of ``a[i]`` by ``b[i]``, for parts of the rows, [M, K] and [M, N] to [P, K, N]."""
    parts, depth, columns = out.shape
    block = np.zeros((_LONGEST_SUM, _room(columns, b)), b.dtype)
    for part in range(first, last):
        start, end = part * a.shape[0] // parts, (part + 1) * a.shape[0] // parts
        if start == end:
            out[part] = 0
        for begin in range(start, end, _LONGEST_SUM):
            rows = min(_LONGEST_SUM, end - begin)
            for i in range(rows):
                _copy(block[i, :columns], b[begin + i])
            _multiply(a, begin * depth, 1, depth, depth, rows, block, 0, columns, out[part], 0, begin > start)


@_compiled
def sum_parts(first: Any, last: Any, parts: Any, taps: Any, root: Any) -> None:
    """What the taps and the root of each run get back: the sum over its parts, [R, P, C, (K + 1) * D]."""
    _, kernel_size, depth, channels = taps.shape
    for run in range(first, last):
        total = parts[run, 0]
        for part in range(1, parts.shape[1]):
            for k in range(depth):
                for n in range(total.shape[1]):
                    total[k, n] += parts[run, part, k, n]
        for t in range(kernel_size):
            for k in range(depth):
                _copy(taps[run, t, k], total[k, t * channels : (t + 1) * channels])
        for n in range(channels if root.shape[0] > 0 else 0):
            for k in range(depth):
                root[run, n, k] = total[k, kernel_size * channels + n]


# Sorting #######################################################################


@_inlined
def _mirrored(bits: Any, e: Any) -> Any:
    """A number's bits as a whole number that ascends with it, and the other way around."""
    sign = 8 * bits.itemsize - 1
    return bits[e] ^ ((bits[e] >> sign) & ((1 << sign) - 1))


@_inlined
def _to_keys(score: Any, keys: Any) -> None:
    """Whole numbers that ascend where scores descend; NaN comes first, and −0.0 equals +0.0."""
    bits = score.view(keys.dtype)
    first = -(1 << (8 * keys.itemsize - 1))
    for e in range(keys.size):
        score[e] += 0  # turns −0.0 into +0.0
    for e in range(keys.size):
        keys[e] = ~_mirrored(bits, e) if score[e] == score[e] else first


@_inlined
def _to_scores(keys: Any, score: Any) -> None:
    """The scores that keys were made of, to the last bit."""
    bits = score.view(keys.dtype)
    for e in range(keys.size):
        bits[e] = ~keys[e]
        bits[e] = _mirrored(bits, e)


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


# Edges to sequences ############################################################


@_inlined
def _to_starts(counts: Any) -> None:
    """The number of items of each bucket, one place further on, becomes where each of them starts."""
    for j in range(1, counts.size):
        counts[j] += counts[j - 1]


@_inlined
def _count_edges(source: Any, target: Any, self_entries: Any, by_source: Any, by_target: Any) -> Any:
    """How many edges leave and reach each node, self entries among them; whether all ids exist."""
    for j in range(by_source.size):
        by_source[j] = 0 < j <= self_entries
    for i in range(by_target.size):
        by_target[i] = 0 < i <= self_entries
    for e in range(source.size):
        j, i = source[e], target[e]
        if not (0 <= j < by_source.size - 1 and 0 <= i < by_target.size - 1):
            return False
        if self_entries == 0 or i != j:
            by_source[j + 1] += 1
            by_target[i + 1] += 1
    _to_starts(by_source)
    _to_starts(by_target)
    return True


@_compiled
def sort_edges(
    _first: Any,
    _last: Any,
    source: Any,
    target: Any,
    num_sources: Any,
    self_entries: Any,
    merges: Any,
    ptr: Any,
    row: Any,
    index: Any,
    short_ptr: Any,
    short_index: Any,
    facts: Any,
) -> None:
    """Sorts edges by source, then by target: within a row, sources ascend. Rows close up over duplicates.

    Counting and sorting all edges is one piece of work, which cannot be cut. The facts are the number of
    entries, or −1 if an id does not exist, and the length of the longest row. What is left behind the last
    row is not used. ``short_ptr`` and ``short_index`` are the same in fewer bits.
    """
    facts[0], facts[1] = -1, 0
    by_source: Any = np.empty(num_sources + 1, short_ptr.dtype)
    if not _count_edges(source, target, self_entries, by_source, short_ptr):
        return
    entries, first_source = int(by_source[num_sources]), by_source.copy()
    targets = np.empty(entries, short_ptr.dtype)
    for i in range(self_entries):
        targets[by_source[i]] = i
        by_source[i] += 1
    for e in range(source.size):
        if self_entries == 0 or source[e] != target[e]:
            targets[by_source[source[e]]] = target[e]
            by_source[source[e]] += 1
    ends, sources = short_ptr.copy(), np.empty(entries, short_ptr.dtype)
    for j in range(num_sources):
        for place in range(first_source[j], first_source[j + 1]):
            i = targets[place]
            sources[ends[i]] = j
            ends[i] += 1
    free, longest = 0, 0
    for i in range(ptr.size - 1):
        start, end, first = short_ptr[i], short_ptr[i + 1], free
        ptr[i] = free
        short_ptr[i] = free
        for e in range(start, end):
            if not merges or e == start or sources[e] != sources[e - 1]:
                index[free] = sources[e]
                short_index[free] = sources[e]
                row[free] = i
                free += 1
        longest = max(longest, free - first)
    ptr[ptr.size - 1] = free
    short_ptr[ptr.size - 1] = free
    facts[0], facts[1] = free, longest


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


@_inlined
def _has_ties(keys: Any) -> Any:
    """Whether some of the sorted keys are equal."""
    ties = 0
    for e in range(1, keys.size):
        ties += keys[e] == keys[e - 1]
    return ties > 0


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
    ptr: Any,
    index: Any,
    longest: Any,
    score: Any,
    keys: Any,
    ranked: Any,
    place: Any,
) -> None:
    """Scores each target's sources and sorts them: the score and the place of each entry, who stands where.

    Sources ascend within a row, so that among equals the smaller id comes first by itself. Own scores are
    worked out for rows in which scores tie. The type of ``keys``, an empty array, is that of what is sorted.
    """
    keys, spare_keys = np.empty(longest, keys.dtype), np.empty(longest, keys.dtype)
    run_keys, own_keys = np.empty(longest, keys.dtype), np.empty(longest, keys.dtype)
    own = np.empty(longest, key.dtype)
    items, spare_items = np.empty(longest, place.dtype), np.empty(longest, place.dtype)
    numbers = np.empty(longest, place.dtype)
    bits, nan_key = score.view(keys.dtype), -(1 << (8 * keys.itemsize - 1))
    for e in range(longest):
        numbers[e] = e
    for i in range(first, last):
        start, end = ptr[i], ptr[i + 1]
        count = end - start
        for e in range(start, end):
            _fetch(key, index[min(e + _AHEAD, index.size - 1)])
            score[e] = _dot(query[i], key[index[e]])
        # No slices on the way of most rows, which are short: each would count references to its array.
        for e in range(count):
            score[start + e] += 0  # turns −0.0 into +0.0
            is_number = score[start + e] == score[start + e]
            keys[e] = ~_mirrored(bits, start + e) if is_number else nan_key
        if count <= _COUNTED:
            total = 0
            for e in range(count):
                key_here, smaller = keys[e], 0
                for other in range(count):
                    smaller += keys[other] < key_here
                place[start + e] = smaller
                total += smaller
            if total == count * (count - 1) // 2:  # all of them differ
                for e in range(count):
                    ranked[start + place[start + e]] = index[start + e]
                continue
        sources, at = index[start:end], place[start:end]
        for e in range(count):
            items[e] = e
        _sort(keys[:count], items[:count], spare_keys[:count], spare_items[:count], at)
        if _has_ties(keys[:count]):
            for e in range(count):
                own[e] = _dot(key[sources[e]], key[sources[e]])
            _to_keys(own[:count], own_keys[:count])
            _settle_ties(
                keys[:count], items[:count], own_keys, numbers, run_keys, spare_keys, spare_items, at
            )
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
def count_candidates(first: Any, last: Any, hops: Any, ptr: Any, index: Any, count: Any) -> None:
    """How many lie within several hops of each target, but not within one."""
    stamp, queue = np.full(count.size, -1, index.dtype), np.empty(count.size + 1, index.dtype)
    for i in range(first, last):
        near, reached = _walk(i, hops, ptr, index, stamp, queue)
        count[i] = reached - near


@_inlined
def _ascending(nodes: Any, words: Any, groups: Any, out: Any) -> None:
    """Sorts distinct nodes: marks them in a table of bits, reads these one after the other, wipes them.

    A second table marks which words of the first are not zero, so that few are looked at in vain.
    """
    one = np.uint64(1)
    for at in range(nodes.size):
        node = nodes[at]
        words[node >> 6] |= one << np.uint64(node & 63)
        groups[node >> 12] |= one << np.uint64((node >> 6) & 63)
    at = 0
    for g in range(groups.size):
        group, groups[g] = groups[g], 0
        while group:
            w = (g << 6) + _lowest_bit(group)
            group &= group - one
            word, words[w] = words[w], 0
            while word:
                out[at] = (w << 6) + _lowest_bit(word)
                word &= word - one
                at += 1


@_compiled
def list_candidates(
    first: Any, last: Any, hops: Any, ptr: Any, index: Any, list_ptr: Any, listed: Any
) -> None:
    """Who they are, ascending."""
    nodes = list_ptr.size - 1
    stamp, queue = np.full(nodes, -1, index.dtype), np.empty(nodes + 1, index.dtype)
    words, groups = np.zeros((nodes >> 6) + 1, np.uint64), np.zeros((nodes >> 12) + 1, np.uint64)
    for i in range(first, last):
        near, reached = _walk(i, hops, ptr, index, stamp, queue)
        _ascending(queue[near:reached], words, groups, listed[list_ptr[i] : list_ptr[i + 1]])


@_inlined
def _weak(score: Any, start: Any, end: Any, threshold: Any) -> Any:
    """How many of a target's neighbours make room."""
    count = 0
    for e in range(start, end):
        count += not score[e] > threshold
    return count


@_inlined
def _scratch(room: Any, own: Any, score: Any, nodes: Any) -> Any:
    """What :func:`_best` needs to find as many as ``room``: scores, nodes, and what sorts them."""
    size = 2 * room + _BLOCK
    keys = (np.empty(size, own.dtype), np.empty(size, own.dtype), np.empty(size, own.dtype))
    items = (np.empty(size, nodes.dtype), np.empty(size, nodes.dtype), np.empty(size, nodes.dtype))
    return np.empty(size, score.dtype), np.empty(size, nodes.dtype), keys, items


@_compiled
def _sort_held(count: Any, own: Any, scratch: Any) -> None:
    """Puts the first so many of the nodes held in their order; among equals, they ascend before."""
    scores, nodes, (keys, spare_keys, run_keys), (items, spare_items, place) = scratch
    keys, spare_items = keys[:count], spare_items[:count]
    _to_keys(scores[:count], keys)
    if count <= _COUNTED and _count_smaller(keys, place):
        for e in range(count):
            spare_keys[place[e]] = keys[e]
            spare_items[place[e]] = nodes[e]
        _to_scores(spare_keys[:count], scores[:count])
    else:
        items = items[:count]
        for e in range(count):
            items[e] = e
        _sort(keys, items, spare_keys[:count], spare_items, place)
        _settle_ties(keys, items, own, nodes, run_keys, spare_keys, spare_items, place)
        for e in range(count):
            spare_items[e] = nodes[items[e]]
        _to_scores(keys, scores[:count])
    _copy(nodes[:count], spare_items)


@_inlined
def _best(
    query: Any, key: Any, own: Any, candidates: Any, offset: Any, score: Any, node: Any, scratch: Any
) -> Any:
    """The best of some nodes, ascending, as many as there is room for, best first; how many there are.

    Those that may be among them are held until there are too many, and sorted then: the last of the best is
    the one to beat from there on.
    """
    scores, nodes = scratch[0], scratch[1]
    most = 2 * node.size + _BLOCK
    held, to_beat = 0, query.dtype.type(-np.inf)
    for begin in range(0, candidates.size, _BLOCK):
        if held + _BLOCK > most:
            _sort_held(held, own, scratch)
            held = node.size
            to_beat = scores[held - 1]
        for e in range(begin, min(begin + _BLOCK, candidates.size)):
            _fetch(key, candidates[min(e + _FAR_AHEAD, candidates.size - 1)] + offset)
            scores[held] = _dot(query, key[candidates[e] + offset])
            nodes[held] = candidates[e] + offset
            held += not scores[held] < to_beat
    _sort_held(held, own, scratch)
    held = min(held, node.size)
    _copy(score[:held], scores)
    _copy(node[:held], nodes)
    return held


@_compiled
def best_walked(
    first: Any,
    last: Any,
    query: Any,
    key: Any,
    own: Any,
    score: Any,
    threshold: Any,
    ptr: Any,
    longest: Any,
    index: Any,
    hops: Any,
    far_score: Any,
    far: Any,
    found: Any,
) -> None:
    """The best of those further away, as many as there is room for, best first; found by walking."""
    size = key.shape[0]
    stamp, queue = np.full(size, -1, index.dtype), np.empty(size + 1, index.dtype)
    words, groups = np.zeros((size >> 6) + 1, np.uint64), np.zeros((size >> 12) + 1, np.uint64)
    scratch = _scratch(longest, own, far_score, far)
    for i in range(first, last):
        start, found[i] = ptr[i], 0
        end = start + _weak(score, start, ptr[i + 1], threshold[i])
        if start < end:
            near, reached = _walk(i, hops, ptr, index, stamp, queue)
            candidates = queue[near:reached]
            _ascending(candidates, words, groups, candidates)
            found[i] = _best(query[i], key, own, candidates, 0, far_score[start:end], far[start:end], scratch)


@_compiled
def best_listed(
    first: Any,
    last: Any,
    query: Any,
    key: Any,
    own: Any,
    score: Any,
    threshold: Any,
    ptr: Any,
    longest: Any,
    list_ptr: Any,
    listed: Any,
    far_score: Any,
    far: Any,
    found: Any,
) -> None:
    """The same by lists: those of one copy of the graph, and row i stands in copy i // nodes."""
    scratch = _scratch(longest, own, far_score, far)
    for i in range(first, last):
        start, found[i] = ptr[i], 0
        end = start + _weak(score, start, ptr[i + 1], threshold[i])
        if start < end:
            row = i % (list_ptr.size - 1)
            candidates = listed[list_ptr[row] : list_ptr[row + 1]]
            found[i] = _best(
                query[i], key, own, candidates, i - row, far_score[start:end], far[start:end], scratch
            )


@_inlined
def _goes_before(key: Any, node: Any, other_key: Any, other: Any, own: Any) -> Any:
    if key != other_key:
        return key < other_key
    if own[node] != own[other]:
        return own[node] < own[other]
    return node < other


@_compiled
def merge(
    first: Any,
    last: Any,
    own: Any,
    ptr: Any,
    index: Any,
    longest: Any,
    score: Any,
    place: Any,
    threshold: Any,
    far_score: Any,
    far: Any,
    found: Any,
    joint: Any,
    out_node: Any,
    out_score: Any,
    out_entry: Any,
) -> None:
    """Weak neighbours of each target make room for those found further away; all of them are ranked."""
    keys, far_keys = np.empty(longest, own.dtype), np.empty(longest, own.dtype)
    items = np.empty(longest, place.dtype)
    for i in range(first, last):
        start, end = ptr[i], ptr[i + 1]
        count, new = end - start, found[i]
        _to_keys(score[start:end], keys[:count])
        _to_keys(far_score[start : start + new], far_keys[:new])
        for e in range(count):
            items[place[start + e]] = e
        # Where those found are too few, the best of the dropped stay; all in their order, or locals first.
        room = _weak(score, start, end, threshold[i]) - new
        p, f, far_end = start, start, start + new
        for position in range(count):
            item = items[position]
            entry = start + item
            if not score[entry] > threshold[i]:
                if room == 0:
                    continue
                room -= 1
            node = index[entry]
            while joint and f < far_end and _goes_before(far_keys[f - start], far[f], keys[item], node, own):
                out_node[p], out_score[p], out_entry[p] = far[f], far_score[f], -1
                f += 1
                p += 1
            out_node[p], out_score[p], out_entry[p] = node, score[entry], entry
            p += 1
        for rest in range(f, far_end):
            out_node[p], out_score[p], out_entry[p] = far[rest], far_score[rest], -1
            p += 1


@_inlined
def _fetch_entry(s: Any, ptr: Any, target: Any, entry: Any, place: Any) -> None:
    """Asks for what tells how an entry of the transposed graph stands in its sequence."""
    _fetch(ptr, target[s])
    _fetch(place, entry[s])


# Equations 5 and 6, the largest window #########################################


@_inlined
def _fetch_taps(kernel_size: Any, table: Any, node: Any, q: Any, windows: Any) -> None:
    """Asks for what a node at position q adds to windows: the taps from q − windows + 1 to q."""
    start = table.ctypes.data + node * table.strides[0]
    low, high = max(0, q - windows + 1), min(kernel_size, q + 1)
    for place in range(start + low * table.strides[1], start + high * table.strides[1], _CACHE_LINE):
        _prefetch(place)


@_compiled
def window_max(
    first: Any,
    last: Any,
    kernel_size: Any,
    projected: Any,
    bias: Any,
    ptr: Any,
    nodes: Any,
    out: Any,
    winner: Any,
) -> None:
    """The largest window sum of each channel, and the first window that reaches it.

    What lies behind the taps in a projected row is added to the maximum of the node's own sequence, and then
    the bias of its run, [R, D], unless there is none.

    Entry by entry, so that all that is needed of a node is read at once: at position q it stands under tap t
    of the window that begins at q − t. The sums of the windows that are not yet complete lie in a ring.
    """
    channels, with_root = projected.shape[2], projected.shape[1] > kernel_size
    ring = np.empty((kernel_size, channels), projected.dtype)
    best, at = np.empty(channels, projected.dtype), np.empty(channels, winner.dtype)
    per_run = out.shape[0] // max(bias.shape[0], 1)
    is_far = projected.size * projected.itemsize > _NEAR_BYTES
    for i in range(first, last):
        start, length = ptr[i], ptr[i + 1] - ptr[i]
        windows = max(length - kernel_size + 1, 1)
        if is_far and i + 1 < last:
            following = ptr[i + 2] - ptr[i + 1]
            for q in range(min(following, _AHEAD)):
                windows_there = max(following - kernel_size + 1, 1)
                _fetch_taps(kernel_size, projected, nodes[ptr[i + 1] + q], q, windows_there)
        for c in range(channels):
            best[c] = 0
            at[c] = 0
        if windows == 1:  # as most have in small graphs
            for q in range(min(length, kernel_size)):
                node = nodes[start + q]
                for c in range(channels):
                    best[c] += projected[node, q, c]
        for q in range(length if windows > 1 else 0):
            if is_far and q + _AHEAD < length:
                _fetch_taps(kernel_size, projected, nodes[start + q + _AHEAD], q + _AHEAD, windows)
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
            elif p == 0:
                for c in range(channels):
                    best[c] = ring[0, c]
        for c in range(channels):
            out[i, c] = best[c] + projected[i, kernel_size, c] if with_root else best[c]
            winner[i, c] = at[c]
        if bias.shape[0] > 0:
            run = i // per_run
            for c in range(channels):
                out[i, c] += bias[run, c]


@_compiled
def window_max_scatter(
    first: Any,
    last: Any,
    kernel_size: Any,
    grad: Any,
    winner: Any,
    ptr: Any,
    nodes: Any,
    block: Any,
    out: Any,
) -> None:
    """Adds each channel's gradient to the rows under its winner, for blocks of channels."""
    channels, with_root = out.shape[2], out.shape[1] > kernel_size
    low, high = first * block, min(last * block, channels)
    for i in range(ptr.size - 1):
        end = ptr[i + 1]
        if with_root:
            for c in range(low, high):
                out[i, kernel_size, c] = grad[i, c]
        for c in range(low, high):
            start = ptr[i] + winner[i, c]
            for t in range(min(kernel_size, end - start)):
                out[nodes[start + t], t, c] += grad[i, c]


@_compiled
def window_max_gather(
    first: Any,
    last: Any,
    kernel_size: Any,
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
    channels, with_root = out.shape[2], out.shape[1] > kernel_size
    zero = grad.dtype.type(0)
    for j in range(first, last):
        for t in range(kernel_size):
            for c in range(channels):
                out[j, t, c] = 0
        if with_root:
            _copy(out[j, kernel_size], grad[j])
        for s in range(source_ptr[j], source_ptr[j + 1]):
            _fetch_entry(min(s + 2 * _AHEAD, target.size - 1), ptr, target, entry, place)
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
def _sum_windows(
    first: Any, last: Any, kernel_size: Any, is_mean: Any, x: Any, ptr: Any, nodes: Any, out: Any
) -> None:
    """What each tap meets over all windows: position q lies under the taps from q − windows + 1 to q.

    What lies under every tap, the core, is summed once; the first and last few are added one by one. Behind
    the taps comes the node's own row, if there is room for it. ``out`` begins with the row ``first``.
    """
    channels, with_root = out.shape[2], out.shape[1] > kernel_size
    part, core = np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    for i in range(first, last):
        row, start, length = i - first, ptr[i], ptr[i + 1] - ptr[i]
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
                out[row, t, c] = core[c]
        for q in range(min(kernel_size - 1, length)):
            node = nodes[start + q]
            for t in range(max(0, q - windows + 1), q + 1):
                for c in range(channels):
                    out[row, t, c] += x[node, c]
        for q in range(max(windows, kernel_size - 1), length):
            node = nodes[start + q]
            for t in range(q - windows + 1, kernel_size):
                for c in range(channels):
                    out[row, t, c] += x[node, c]
        if is_mean:
            count = x.dtype.type(windows)
            for t in range(kernel_size):
                for c in range(channels):
                    out[row, t, c] /= count
        if with_root:
            _copy(out[row, kernel_size], x[i])


@_compiled
def window_sum(
    first: Any,
    last: Any,
    kernel_size: Any,
    is_mean: Any,
    x: Any,
    ptr: Any,
    nodes: Any,
    taps: Any,
    root: Any,
    out: Any,
) -> None:
    """What each tap meets over all windows, times the taps and the root, [R, K, C, D] and [R, D, C] or none.

    A few rows at a time, so that their sums are still in a cache when they are multiplied.
    """
    columns, each = out.shape[1], kernel_size + (root.shape[0] > 0)
    depth, per_run = each * x.shape[1], out.shape[0] // taps.shape[0]
    sums = np.empty((_BLOCK_ROWS, each, x.shape[1]), x.dtype)
    b = np.empty((depth, _room(columns, out)), out.dtype)
    run, done = first // max(per_run, 1), first
    while done < last:
        end = min(last, (run + 1) * per_run)
        _fill_rows(taps, root, run, BELOW, b)
        for begin in range(done, end, _BLOCK_ROWS):
            rows = min(_BLOCK_ROWS, end - begin)
            _sum_windows(begin, begin + rows, kernel_size, is_mean, x, ptr, nodes, sums)
            for k in range(0, depth, _LONGEST_SUM):
                part, at = min(_LONGEST_SUM, depth - k), k * b.shape[1]
                _multiply(sums, k, depth, 1, rows, part, b, at, columns, out, begin * columns, k > 0)
        run, done = run + 1, end


@_compiled
def window_sum_gather(
    first: Any,
    last: Any,
    kernel_size: Any,
    is_mean: Any,
    grad: Any,
    ptr: Any,
    source_ptr: Any,
    target: Any,
    entry: Any,
    place: Any,
    out: Any,
) -> None:
    """The same by source: the gradients of all windows in which it stood under each tap."""
    channels, with_root = out.shape[2], out.shape[1] > kernel_size
    one = grad.dtype.type(1)
    part, core = np.empty((kernel_size, channels), grad.dtype), np.empty(channels, grad.dtype)
    for j in range(first, last):
        for t in range(kernel_size):
            for c in range(channels):
                out[j, t, c] = 0
        for begin in range(source_ptr[j], source_ptr[j + 1], _LONGEST_SUM):
            for c in range(channels):
                core[c] = 0
            for t in range(kernel_size):
                for c in range(channels):
                    part[t, c] = 0
            for s in range(begin, min(begin + _LONGEST_SUM, source_ptr[j + 1])):
                _fetch_entry(min(s + 2 * _AHEAD, target.size - 1), ptr, target, entry, place)
                _fetch(grad, target[min(s + _AHEAD, target.size - 1)])
                i, q = target[s], place[entry[s]]
                windows = max(ptr[i + 1] - ptr[i] - kernel_size + 1, 1)
                share = one / grad.dtype.type(windows) if is_mean else one
                low, high = max(0, q - windows + 1), min(kernel_size, q + 1)
                if high - low == kernel_size:
                    for c in range(channels):
                        core[c] += share * grad[i, c]
                else:
                    for t in range(low, high):
                        for c in range(channels):
                            part[t, c] += share * grad[i, c]
            for t in range(kernel_size):
                for c in range(channels):
                    out[j, t, c] += part[t, c] + core[c]
        if with_root:
            _copy(out[j, kernel_size], grad[j])


# Soft ranks ####################################################################


@_compiled
def pair_scores(first: Any, last: Any, query: Any, key: Any, ptr: Any, nodes: Any, out: Any) -> None:
    """The inner product of each entry's target and source."""
    for i in range(first, last):
        for e in range(ptr[i], ptr[i + 1]):
            _fetch(key, nodes[min(e + _AHEAD, nodes.size - 1)])
            out[e] = _dot(query[i], key[nodes[e]])


# One over so little is still a number.
_LEAST_DOUBLE = 1e-307


@_compiled
def soft_ranks(first: Any, last: Any, score: Any, ptr: Any, longest: Any, least: Any, out: Any) -> None:
    """Each entry's share of each rank: the softmax of its row, which leaves less for the next rank.

    A row has no more ranks than entries. A share leaves ``least`` at least. What a share of more than a half
    leaves is the sum of the others: close to one, the share itself does not tell. What is left is multiplied,
    not its logarithm added to the score: one exponential for all ranks. Doubles hold what lies 700 below the
    best score, more than ten ranks can take away from it; what further ones leave of it is not zero either.
    """
    left = np.empty(longest, np.float64)
    for i in range(first, last):
        start, count = ptr[i], ptr[i + 1] - ptr[i]
        best = score[start] if count > 0 else score.dtype.type(0)
        for e in range(1, count):
            best = max(best, score[start + e])
        for e in range(count):
            left[e] = np.exp(np.float64(score[start + e]) - np.float64(best))
        for t in range(out.shape[1]):
            if t >= count:
                for e in range(count):
                    out[start + e, t] = 0
                continue
            most, total, others = 0.0, 0.0, 0.0
            for e in range(count):
                most = max(most, left[e])
                total += left[e]
            if 2.0 * most > total:  # of one entry: without it, or all digits of the others could be lost
                for e in range(count):
                    others += left[e] if left[e] != most else 0.0
                total = others + most
            scale = 1.0 / total
            for e in range(count):
                share = left[e] * scale
                out[start + e, t] = share
                if share > 0.5:
                    left[e] = max(left[e] * max(others * scale, np.float64(least)), _LEAST_DOUBLE)
                else:
                    left[e] *= 1.0 - share


@_compiled
def soft_ranks_grad(
    first: Any, last: Any, share: Any, grad: Any, ptr: Any, longest: Any, least: Any, out: Any
) -> None:
    """What the scores get back, from the last rank to the first.

    What comes back through a share of more than a half may dwarf all else. It is held apart from the sum over
    the others, and multiplied by their shares before it is added to theirs.
    """
    given = np.empty(longest, out.dtype)
    zero, half, one = out.dtype.type(0), out.dtype.type(0.5), out.dtype.type(1)
    for i in range(first, last):
        start, count = ptr[i], ptr[i + 1] - ptr[i]
        back = out[start : start + count]
        for e in range(count):
            back[e] = 0
        for t in range(min(share.shape[1], count) - 1, -1, -1):
            mean, others, large = zero, zero, -1
            for begin in range(0, count, _LONGEST_SUM):
                part, part_share = zero, zero
                for e in range(begin, min(begin + _LONGEST_SUM, count)):
                    p = share[start + e, t]
                    if p > half:
                        large = e
                    else:
                        given[e] = grad[start + e, t] - back[e] / (one - p)
                        part += p * given[e]
                        part_share += p
                mean += part
                others += part_share
            whole = mean
            if large >= 0:
                p, own = share[start + large, t], back[large] if others >= least else zero
                whole += p * (grad[start + large, t] - own / max(others, least))
                back[large] += p * (others * grad[start + large, t] - own - mean)
            for e in range(count):
                if e != large:
                    back[e] += share[start + e, t] * (given[e] - whole)


@_inlined
def _add_weighted(table: Any, nodes: Any, weight: Any, count: Any, part: Any, out: Any) -> None:
    """Adds the weighted sums of some rows of a table; weights [B, T], sums [T, C].

    Four rows at a time: the sums are then read and written a quarter as often.
    """
    for t in range(part.shape[0]):
        for c in range(part.shape[1]):
            part[t, c] = 0
    whole = count - count % 4
    for s in range(0, whole, 4):
        j0, j1, j2, j3 = nodes[s], nodes[s + 1], nodes[s + 2], nodes[s + 3]
        for t in range(part.shape[0]):
            w0, w1, w2, w3 = weight[s, t], weight[s + 1, t], weight[s + 2, t], weight[s + 3, t]
            for c in range(part.shape[1]):
                pair = w0 * table[j0, c] + w1 * table[j1, c]
                part[t, c] += pair + (w2 * table[j2, c] + w3 * table[j3, c])
    for s in range(whole, count):
        for t in range(part.shape[0]):
            for c in range(part.shape[1]):
                part[t, c] += weight[s, t] * table[nodes[s], c]
    for t in range(part.shape[0]):
        for c in range(part.shape[1]):
            out[t, c] += part[t, c]


@_compiled
def weighted_sums(first: Any, last: Any, x: Any, ptr: Any, nodes: Any, weight: Any, out: Any) -> None:
    """Several weighted sums of each row's sources, and their mean behind them if there is room for it."""
    count, sums = weight.shape[1], out.shape[1]
    local, part = np.ones((_LONGEST_SUM, sums), x.dtype), np.empty((sums, x.shape[1]), x.dtype)
    for i in range(first, last):
        for t in range(sums):
            for c in range(x.shape[1]):
                out[i, t, c] = 0
        for begin in range(ptr[i], ptr[i + 1], _LONGEST_SUM):
            end = min(begin + _LONGEST_SUM, ptr[i + 1])
            for e in range(begin, end):
                _fetch(x, nodes[e])
                for t in range(count):
                    local[e - begin, t] = weight[e, t]
            _add_weighted(x, nodes[begin:end], local, end - begin, part, out[i])
        if sums > count and ptr[i + 1] > ptr[i]:
            length = x.dtype.type(ptr[i + 1] - ptr[i])
            for c in range(x.shape[1]):
                out[i, count, c] /= length


@_compiled
def weighted_sums_gather(
    first: Any,
    last: Any,
    grad: Any,
    ptr: Any,
    source_ptr: Any,
    target: Any,
    entry: Any,
    weight: Any,
    out: Any,
) -> None:
    """The same by source: the weighted sums of the targets' gradients."""
    count, sums = weight.shape[1], out.shape[1]
    local, part = np.empty((_LONGEST_SUM, sums), grad.dtype), np.empty((sums, grad.shape[1]), grad.dtype)
    one = grad.dtype.type(1)
    for j in range(first, last):
        for t in range(sums):
            for c in range(grad.shape[1]):
                out[j, t, c] = 0
        for begin in range(source_ptr[j], source_ptr[j + 1], _LONGEST_SUM):
            end = min(begin + _LONGEST_SUM, source_ptr[j + 1])
            for s in range(begin, end):
                _fetch(grad, target[s])
                _fetch_entry(min(s + _AHEAD, target.size - 1), ptr, target, entry, weight)
                for t in range(count):
                    local[s - begin, t] = weight[entry[s], t]
                if sums > count:
                    i = target[s]
                    local[s - begin, count] = one / grad.dtype.type(ptr[i + 1] - ptr[i])
            _add_weighted(grad, target[begin:end], local, end - begin, part, out[j])


@_compiled
def weights_grad(first: Any, last: Any, grad: Any, x: Any, ptr: Any, nodes: Any, out: Any) -> None:
    """What the weights get back: the product of each entry's source with each sum's gradient, [N, T, C]."""
    for i in range(first, last):
        for e in range(ptr[i], ptr[i + 1]):
            _fetch(x, nodes[min(e + _AHEAD, nodes.size - 1)])
            for t in range(out.shape[1]):
                out[e, t] = _dot(grad[i, t], x[nodes[e]])


# Dropout #######################################################################

# Of the functions of :mod:`node2seq.ops.dropout`, whose words are signed: the same bits.
_WORD = np.uint64(dropout.WORD - 1)
_SPREAD = np.uint64(dropout.SPREAD % dropout.WORD)
_MIX_1 = np.uint64(dropout.MIX_1 % dropout.WORD)
_MIX_2 = np.uint64(dropout.MIX_2 % dropout.WORD)
_HIGHEST_BIT = np.uint64(dropout.WORD // 2)
_15, _16 = np.uint64(15), np.uint64(16)


@_inlined
def _mix(word: Any) -> Any:
    word = ((word ^ (word >> _16)) * _MIX_1) & _WORD
    word = ((word ^ (word >> _15)) * _MIX_2) & _WORD
    return word ^ (word >> _16)


@_compiled
def drop(
    first: Any, last: Any, x: Any, node: Any, whole_rows: Any, stream: Any, least: Any, scale: Any, out: Any
) -> None:
    """Rows of all runs, one run behind the other: what each keeps, scaled.

    Zeros stay zeros whatever their words are, and most features are zero.
    """
    runs, rows, channels = out.shape
    for row in range(first, last):
        run, i = row // rows, row % rows
        # All runs may share their features.
        values, kept = x[run if x.shape[0] == runs else 0, i], out[run, i]
        begin = np.uint64(node[i] if whole_rows else node[i] * channels)
        for c in range(channels):
            value = values[c]
            if value != 0:
                element = begin if whole_rows else begin + np.uint64(c)
                word = _mix((element * _SPREAD + stream[run]) & _WORD)
                value = value * scale[run] if (word ^ _HIGHEST_BIT) >= least[run] else 0
            kept[c] = value


# Sampling ######################################################################


_STEP, _MIX_64_1, _MIX_64_2 = np.uint64(sampling.STEP), np.uint64(sampling.MIX_1), np.uint64(sampling.MIX_2)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@_inlined
def _mix_64(word: Any) -> Any:
    word = (word ^ (word >> _30)) * _MIX_64_1
    word = (word ^ (word >> _27)) * _MIX_64_2
    return word ^ (word >> _31)


@_compiled
def sample(
    colptr: Any,
    row: Any,
    frontier: Any,
    first: Any,
    fanout: Any,
    key: Any,
    latest: Any,
    place: Any,
    node: Any,
    source: Any,
    target: Any,
    edge: Any,
) -> Any:
    """Draws edges into each node by Floyd's algorithm and numbers the nodes that are new; how many there are.

    One after the other, because the numbers of new nodes depend on those before them.
    """
    new, at, behind = 0, 0, first + frontier.shape[0]
    for i in range(frontier.shape[0]):
        own = frontier[i]
        start, length = colptr[own], colptr[own + 1] - colptr[own]
        count = length if fanout < 0 or length < fanout else fanout
        if count == length or latest:
            for j in range(count):
                edge[at + j] = start + length - count + j
        else:
            word = _mix_64(key + np.uint64(own) * _STEP)
            for j in range(count):
                last = length - count + j
                high = _mix_64(word + np.uint64(j + 1) * _STEP) >> _32
                pick = start + np.int64(high * np.uint64(last + 1) >> _32)
                for other in range(at, at + j):
                    if edge[other] == pick:
                        pick = start + last
                        break
                edge[at + j] = pick
        target[at : at + count] = first + i
        at += count
    # Loops of their own: reads that wait for nothing but memory are under way many at a time.
    for j in range(at):
        source[j] = row[edge[j]]
    for j in range(at):
        neighbour = source[j]
        number = place[neighbour]
        if number < 0:
            number = behind + new
            place[neighbour] = number
            node[new] = neighbour
            new += 1
        source[j] = number
    return new
