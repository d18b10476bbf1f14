"""The adaptive selection: each row's best candidates by bisection, without a sort and without a wait."""

# Triton's own language, which its annotations do not describe.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from torch import Tensor

from node2seq.ops import selection
from node2seq.ops.candidates import Candidates, Part
from node2seq.ops.sequences import Positions, Ranking, Sequences, lasting
from node2seq.ops.triton.dynamic_plan import DynamicPlan, dynamic_layout
from node2seq.ops.triton.launch import TILES, Tile, cdiv, channel_blocks, launch, plain
from node2seq.ops.triton.plan import GpuPlan, Work, plan_of
from node2seq.ops.triton.ranking import rank
from node2seq.ops.triton.scores import own_score, score
from node2seq.ops.triton.sorting import packs, precedence, sort_rows
from node2seq.ops.triton.work_items import item, rows_at

# Candidates' scores that are held at once: 4 GiB. More runs than that are selected one part after the other.
_SCORES_AT_ONCE = 2**30
# Entries, or candidates, that a program looks at once.
_ROOM_TILE = Tile(128, 1)
_PLACE_TILE = Tile(1024, 4)
_CHOOSE_TILES = (Tile(256, 2), Tile(1024, 4), Tile(2048, 8))


@triton.jit
def sortable(score):
    """Integers in the order of the scores."""
    bits = score.to(tl.int32, bitcast=True)
    bits = tl.where(bits == -2147483648, 0, bits)  # −0.0 equals +0.0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)


@triton.jit(do_not_specialize=["N"])
def room_kernel(
    scores,  # [R * E] of the local entries
    threshold,  # [R * N], or one
    ptr,  # [R * N + 1]
    candidates,  # [N] how many each node has
    room,  # [R * N]
    N,
    PER_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row: how many weak neighbours make room for candidates."""
    row = tl.program_id(0)
    start = tl.load(ptr + row)
    end = tl.load(ptr + row + 1)
    limit = tl.load(threshold + row) if PER_ROW else tl.load(threshold)
    weak = tl.zeros([BLOCK], dtype=tl.int32)
    for e0 in range(start, end, BLOCK):
        entry = e0 + tl.arange(0, BLOCK)
        value = tl.load(scores + entry, mask=entry < end, other=float("inf"))
        weak += ((entry < end) & ~(value > limit)).to(tl.int32)
    tl.store(room + row, tl.minimum(tl.sum(weak), tl.load(candidates + row % N)))


@triton.jit(do_not_specialize=["first_run", "first_row", "N", "L"])
def candidate_score_kernel(
    query,  # [R * N, C]
    key,  # [R * N, C]
    candidate,  # [L]
    item_row,  # [I]
    item_first,  # [I]
    ptr,  # [rows of this part + 1]
    room,  # [R * N]
    out,  # [runs at once, L]
    first_run,
    first_row,
    N,
    L,
    C,
    ITEM: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One item of one run: the scores of some candidates of a row, unless it has no room."""
    row, _, _, first, last = item(item_row, item_first, ptr, ITEM)
    offset = (first_run + tl.program_id(1)) * N
    target = offset + first_row + row
    mine = out + tl.program_id(1).to(tl.int64) * L
    channel = tl.arange(0, BLOCK_C)
    if tl.load(room + target) > 0:
        for e0 in range(first, last, BLOCK_E):
            entry = e0 + tl.arange(0, BLOCK_E)
            real = entry < last
            source = tl.load(candidate + entry, mask=real, other=0) + offset
            total = tl.zeros([BLOCK_E], dtype=tl.float32)
            for c0 in range(0, C, BLOCK_C):
                inside = c0 + channel < C
                own = tl.load(query + target.to(tl.int64) * C + c0 + channel, mask=inside, other=0.0)
                total += tl.sum(rows_at(key, source, c0 + channel, real, inside, C) * own[None, :], axis=1)
            tl.store(mine + entry, total, mask=real)


@triton.jit
def count_from(scores, length, least, BLOCK: tl.constexpr):
    """How many candidates have at least that key."""
    count = tl.zeros([BLOCK], dtype=tl.int32)
    for c0 in range(0, length, BLOCK):
        at = c0 + tl.arange(0, BLOCK)
        key = sortable(tl.load(scores + at, mask=at < length, other=0.0))
        count += ((at < length) & (key >= least)).to(tl.int32)
    return tl.sum(count)


@triton.jit
def count_ties(scores, candidate, precedence, length, tied, last, BLOCK: tl.constexpr):
    """How many candidates have just that key and a precedence up to ``last``."""
    count = tl.zeros([BLOCK], dtype=tl.int32)
    for c0 in range(0, length, BLOCK):
        at = c0 + tl.arange(0, BLOCK)
        ties = (at < length) & (sortable(tl.load(scores + at, mask=at < length, other=0.0)) == tied)
        node = tl.load(candidate + at, mask=ties, other=0)
        count += (ties & (tl.load(precedence + node, mask=ties, other=0) <= last)).to(tl.int32)
    return tl.sum(count)


@triton.jit(do_not_specialize=["first_run", "first_row", "N", "L"])
def choose_kernel(
    scores,  # [runs at once, L]
    candidate,  # [L]
    candidate_ptr,  # [rows of this part + 1]
    rows,  # [rows of this part] longest first
    precedence,  # [R * N]
    room,  # [R * N]
    ptr,  # [R * N + 1]
    node,  # [R * E]
    score,  # [R * E]
    entry,  # [R * E]
    first_run,
    first_row,
    N,
    L,
    BLOCK: tl.constexpr,
):
    """One row of one run: its best candidates, written to the row's end in the order of the list."""
    row = tl.load(rows + tl.program_id(0))
    start = tl.load(candidate_ptr + row)
    length = tl.load(candidate_ptr + row + 1) - start
    offset = (first_run + tl.program_id(1)) * N
    target = offset + first_row + row
    found = tl.load(room + target)
    candidate += start
    precedence += offset
    scores += tl.program_id(1).to(tl.int64) * L + start
    if found > 0:
        lowest = tl.full([BLOCK], 2147483647, dtype=tl.int64)
        highest = tl.full([BLOCK], -2147483648, dtype=tl.int64)
        for c0 in range(0, length, BLOCK):
            at = c0 + tl.arange(0, BLOCK)
            key = sortable(tl.load(scores + at, mask=at < length, other=0.0))
            lowest = tl.minimum(lowest, tl.where(at < length, key, 2147483647))
            highest = tl.maximum(highest, tl.where(at < length, key, -2147483648))
        # The key of the weakest that is found: at least as many have it or more, and fewer have more.
        low = tl.min(lowest, axis=0)
        high = tl.max(highest, axis=0)
        while low < high:
            middle = low + ((high - low + 1) >> 1)
            count = count_from(scores, length, middle, BLOCK)
            low = tl.where(count >= found, middle, low)
            high = tl.where(count > found, high, tl.where(count == found, middle, middle - 1))
        above = count_from(scores, length, low + 1, BLOCK)
        places = found - above
        # Where more have that key than there are places, the last precedence that gets one.
        last = tl.full([], 2147483647, dtype=tl.int64)
        lower = tl.where(count_from(scores, length, low, BLOCK) - above > places, 0, last)
        while lower < last:
            middle = (lower + last) >> 1
            count = count_ties(scores, candidate, precedence, length, low, middle, BLOCK)
            last = tl.where(count >= places, middle, last)
            lower = tl.where(count >= places, lower, middle + 1)

        slot = tl.load(ptr + target + 1) - found
        for c0 in range(0, length, BLOCK):
            at = c0 + tl.arange(0, BLOCK)
            real = at < length
            value = tl.load(scores + at, mask=real, other=0.0)
            key = sortable(value)
            found_node = tl.load(candidate + at, mask=real, other=0)
            order = tl.load(precedence + found_node, mask=real & (key == low), other=0)
            take = real & ((key > low) | ((key == low) & (order <= last)))
            taken = take.to(tl.int32)
            place = slot + tl.cumsum(taken, axis=0) - 1
            tl.store(node + place, found_node + offset, mask=take)
            tl.store(score + place, value, mask=take)
            tl.store(entry + place, tl.full([BLOCK], -1, dtype=tl.int32), mask=take)
            slot += tl.sum(taken)


@triton.jit(do_not_specialize=["E"])
def stay_kernel(
    scores,  # [R * E]
    index,  # [R * E]
    place,  # [R * E] among the locals
    target,  # [R * E]
    ptr,  # [R * N + 1]
    room,  # [R * N]
    node,  # [R * E]
    score,  # [R * E]
    entry,  # [R * E]
    E,
    BLOCK: tl.constexpr,
):
    """Some local entries: those that stay, best first, fill their row from its start."""
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = own < E
    row = tl.load(target + own, mask=real, other=0)
    start = tl.load(ptr + row, mask=real, other=0)
    end = tl.load(ptr + row + 1, mask=real, other=0)
    position = tl.load(place + own, mask=real, other=0)
    stays = real & (position < end - start - tl.load(room + row, mask=real, other=0))
    tl.store(node + start + position, tl.load(index + own, mask=stays, other=0), mask=stays)
    tl.store(score + start + position, tl.load(scores + own, mask=stays, other=0.0), mask=stays)
    tl.store(entry + start + position, own, mask=stays)


@dataclass
class ListedPart:
    """The candidates of some successive nodes."""

    first: int  # the first of these nodes
    index: Tensor  # [L] int32
    work: Work  # over them


@dataclass
class Lists:
    """The candidates of each node of a graph, as the kernels walk over them."""

    length: Tensor  # [N] int32
    parts: list[ListedPart]

    @classmethod
    def of(cls, parts: list[Part]) -> Lists:
        """The same as they were found."""
        found = []
        for part in parts:
            ptr = torch.cat([part.length.new_zeros(1), part.length.cumsum(0)])
            found.append(ListedPart(part.first, part.node, Work.of(ptr, part.node.numel())))
        length = torch.cat([part.length.int() for part in parts])
        return cls(length, found)


def select(
    query: Tensor,
    key: Tensor,
    sequences: Sequences,
    candidates: Candidates,
    threshold: float | Tensor,
    joint: bool,
) -> Ranking:
    """Local selection, non-local selection and index ranking; every sequence keeps its length.

    Args:
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [N, D].
        sequences (Sequences): The local neighbours.
        candidates (Candidates): The candidates several hops away.
        threshold (float or torch.Tensor): β: a local neighbour stays if its score is larger; one for all
            targets, or one for each, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
    """
    query, key = plain(query.detach()), plain(key.detach())
    scores = score(query, key, sequences)
    order_of_ties = precedence(own_score(key))
    plan = plan_of(sequences)
    lists = lists_of(candidates.base) if sequences.rows.num_entries and packs(plan) else None
    if lists is None:
        own = SimpleNamespace(score=score, rank=rank)
        given = (query, key, scores, order_of_ties, sequences, candidates, threshold, joint)
        return selection.select_by_score(own, *given)

    room = _room(scores, threshold, plan, lists)
    selected = (torch.empty_like(plan.index), torch.empty_like(scores), torch.empty_like(plan.index))
    _choose(query, key, order_of_ties, plan, lists, room, selected)
    _stay(scores, sort_rows(scores, order_of_ties, plan).place, plan, room, selected)
    return _ranked(sequences, plan, *selected, order_of_ties, joint)


def lists_of(candidates: Candidates) -> Lists | None:
    """The lists of a graph, kept with its candidates; none where they are too many to keep."""
    if "triton" not in candidates.plans:
        parts = candidates.parts()
        with lasting():
            candidates.plans["triton"] = None if parts is None else Lists.of(parts)
    return candidates.plans["triton"]


def _room(scores: Tensor, threshold: float | Tensor, plan: GpuPlan, lists: Lists) -> Tensor:
    """How many non-local nodes come into each row, [R * N]."""
    per_row = isinstance(threshold, Tensor) and threshold.numel() > 1
    if isinstance(threshold, Tensor):
        limit = threshold.detach().float().contiguous()
    else:
        limit = torch.full((1,), threshold, dtype=torch.float32, device=scores.device)
    room = torch.empty(plan.rows.num_rows, dtype=torch.int32, device=scores.device)
    launch(
        room_kernel,
        (plan.rows.num_rows,),
        scores,
        limit,
        plan.work.ptr,
        lists.length,
        room,
        lists.length.numel(),
        PER_ROW=per_row,
        BLOCK=_ROOM_TILE.block,
        num_warps=_ROOM_TILE.warps,
    )
    return room


def _choose(
    query: Tensor,
    key: Tensor,
    order_of_ties: Tensor,
    plan: GpuPlan,
    lists: Lists,
    room: Tensor,
    selected: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Writes the best candidates of each row to its end."""
    nodes, width = lists.length.numel(), channel_blocks(key.size(-1))[1]
    runs = plan.rows.num_rows // nodes
    most = max((part.index.numel() for part in lists.parts), default=0)
    at_once = min(max(_SCORES_AT_ONCE // max(most, 1), 1), runs)
    scores = torch.empty(at_once * most, dtype=torch.float32, device=key.device)
    for part in lists.parts:
        work, listed, score_tile = part.work, part.index.numel(), TILES["score"]
        rows = work.rows.numel()
        tile = next((tile for tile in _CHOOSE_TILES if listed <= rows * tile.block), _CHOOSE_TILES[-1])
        for first_run in range(0, runs, at_once):
            count = min(at_once, runs - first_run)
            launch(
                candidate_score_kernel,
                (work.items, count),
                query,
                key,
                part.index,
                work.item_row,
                work.item_first,
                work.ptr,
                room,
                scores,
                first_run,
                part.first,
                nodes,
                listed,
                key.size(-1),
                ITEM=work.item,
                BLOCK_E=score_tile.block,
                BLOCK_C=width,
                num_warps=score_tile.warps,
            )
            launch(
                choose_kernel,
                (rows, count),
                scores,
                part.index,
                work.ptr,
                work.rows,
                order_of_ties,
                room,
                plan.work.ptr,
                *selected,
                first_run,
                part.first,
                nodes,
                listed,
                BLOCK=tile.block,
                num_warps=tile.warps,
            )


def _stay(
    scores: Tensor, place: Tensor, plan: GpuPlan, room: Tensor, selected: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Writes the local neighbours that stay to the start of their rows."""
    entries = plan.index.numel()
    launch(
        stay_kernel,
        (cdiv(entries, _PLACE_TILE.block),),
        scores,
        plan.index,
        place,
        plan.rows.target,
        plan.work.ptr,
        room,
        *selected,
        entries,
        BLOCK=_PLACE_TILE.block,
        num_warps=_PLACE_TILE.warps,
    )


def _ranked(
    sequences: Sequences,
    plan: GpuPlan,
    node: Tensor,
    scores: Tensor,
    entry: Tensor,
    order_of_ties: Tensor,
    joint: bool,
) -> Ranking:
    """The selected in their final order."""
    is_local, by = entry >= 0, scores
    if not joint:
        # Locals are in order already. Above every score, they leave the end of the row to the others.
        most = torch.finfo(scores.dtype).max
        by = scores.nan_to_num(nan=most, posinf=most, neginf=-torch.inf).masked_fill(is_local, torch.inf)
    ranked = sort_rows(by, order_of_ties, DynamicPlan(plan, node))
    index, place = ranked.index, ranked.place
    if not joint:
        index = torch.where(is_local, node, index)
        place = torch.where(is_local, plan.position, place)

    def find() -> Positions:
        rows = plan.rows
        at = rows.ptr[rows.target] + place
        score, own_entry = torch.empty_like(scores), torch.empty_like(entry)
        score[at], own_entry[at] = scores, entry
        return Positions(index.long(), score, own_entry.long())

    return Ranking(sequences, dynamic_layout(plan, index), find)
