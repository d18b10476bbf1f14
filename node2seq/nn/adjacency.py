"""Every form in which PyTorch Geometric users hand over edges → the sequences of a graph."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor as _SparseTensor  # pyright: ignore[reportAttributeAccessIssue]
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.ops.plan_cache import PlanCache

_ARE_ONES = PlanCache()  # whether all values of a sparse matrix are
# A stand-in that nothing is an instance of, where torch_sparse is not installed.
SparseTensor: Any = _SparseTensor


def is_sparse(edge_index: Any) -> bool:
    """Whether edges are handed over as a sparse matrix."""
    return isinstance(edge_index, SparseTensor) or is_torch_sparse_tensor(edge_index)


def edges_of(edge_index: Any, flow: str) -> tuple[Tensor, Tensor]:
    """The source and the target of each edge, int64. A sparse adjacency has a row for each target."""
    if isinstance(edge_index, SparseTensor):
        row, col, _ = edge_index.coo()
        return col, row
    if is_torch_sparse_tensor(edge_index):
        is_coo = edge_index.layout == torch.sparse_coo  # which PyG would mark as coalesced: a change in place
        row, col = edge_index._indices() if is_coo else to_edge_index(edge_index)[0]
        return col.long(), row.long()
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    first, second = edge_index[0].long(), edge_index[1].long()
    return (first, second) if flow == "source_to_target" else (second, first)


def sequences_of(
    edge_index: Any,
    *,
    flow: str,
    num_sources: int,
    num_targets: int,
    add_self_loops: bool,
    merge_duplicates: bool = True,
    hops: int = 1,
    backend: str = "auto",
) -> ops.Sequences:
    """The sequences of a graph, built once and found again.

    Node ids are checked when the sequences are built, and not while exporting or capturing. The user's choice
    of a backend only decides who builds them.
    """
    _check_form(edge_index, flow, num_sources, num_targets)
    if hops > 1 and num_sources != num_targets:
        raise Node2SeqError(
            f"hops={hops} on a graph of {num_sources} source and {num_targets} target nodes",
            "paths of several edges need the same nodes on both sides",
            "Use hops=1 on bipartite graphs and sampled blocks",
        )
    graph = (flow, num_sources, num_targets, add_self_loops, merge_duplicates)
    if torch.compiler.is_compiling():
        return _exported(edge_index, *graph) if ops.is_exporting() else _traced(edge_index, *graph)
    return ops.find_sequences(_owner(edge_index), graph, lambda: edges_of(edge_index, flow), backend)


def entries_of(
    edge_index: Any, *, flow: str, num_sources: int, num_targets: int, add_self_loops: bool
) -> Tensor:
    """The entry of each edge in the sequences of a graph that keep duplicates, [edges]; found once.

    See :func:`node2seq.ops.edge_values.find_entry_of_edge`.
    """
    graph = (flow, num_sources, num_targets, add_self_loops, False)
    if torch.compiler.is_compiling():
        return _traced(edge_index, *graph).entry_of_edge()
    return ops.find_entries(_owner(edge_index), graph, lambda: edges_of(edge_index, flow))


def values_of(edge_index: Any) -> Tensor | None:
    """What a sparse adjacency carries, in the order of :func:`edges_of`; nothing if all its values are ones.

    PyTorch's sparse matrices have values whether they mean something or not.
    """
    if isinstance(edge_index, SparseTensor):
        return edge_index.coo()[2]
    if not is_torch_sparse_tensor(edge_index):
        return None
    is_coo = edge_index.layout == torch.sparse_coo
    values = edge_index._values() if is_coo else to_edge_index(edge_index)[1]
    # With a gradient they are ones now and other numbers after a step.
    if not edge_index.requires_grad and _ARE_ONES.get(edge_index, None, lambda: bool((values == 1).all())):
        return None
    if is_coo and not edge_index.is_coalesced():
        raise Node2SeqError(
            "a sparse adjacency with values that is not coalesced",
            "each of its values is a sum over what is listed for one pair of nodes",
            "Pass adj_t.coalesce(), or edge_index and edge_weight, where parallel edges may differ",
        )
    return edge_index.values() if is_coo else values


def _owner(edge_index: Any) -> Any:
    """What a graph is known by."""
    return edge_index.storage.col() if isinstance(edge_index, SparseTensor) else edge_index


def _exported(
    edge_index: Any,
    flow: str,
    num_sources: int,
    num_targets: int,
    add_self_loops: bool,
    merge_duplicates: bool,
) -> ops.Sequences:
    return ops.build_sequences(
        *edges_of(edge_index, flow),
        num_sources,
        num_targets,
        add_self_loops=add_self_loops,
        merge_duplicates=merge_duplicates,
    )


def _traced(
    edge_index: Any, flow: str, num_sources: int, num_targets: int, *choices: bool
) -> ops.TracedSequences:
    if isinstance(edge_index, (SparseTensor, EdgeIndex)):  # edges that are new in each step, as is their plan
        edge_index, flow = torch.stack(edges_of(edge_index, flow)), "source_to_target"
    is_forward = flow == "source_to_target"
    graph = ops.GraphNumbers(int(is_forward), num_sources, num_targets, *(int(choice) for choice in choices))
    return ops.TracedSequences(edge_index, graph)


def _check_form(edge_index: Any, flow: str, num_sources: int, num_targets: int) -> None:
    if is_sparse(edge_index):
        if flow == "target_to_source":
            raise Node2SeqError(
                "flow='target_to_source' with a sparse adjacency",
                "a sparse adjacency has a row for each target already",
                "Pass the transposed matrix to a layer with flow='source_to_target'",
            )
        shape = (edge_index.size(0), edge_index.size(1))
        if shape != (num_targets, num_sources):
            raise Node2SeqError(
                f"a sparse adjacency of shape {list(shape)}",
                f"there are {num_targets} target and {num_sources} source nodes",
                "Pass adj_t, which has a row for each target and a column for each source",
            )
    elif not isinstance(edge_index, Tensor):
        raise Node2SeqError(
            f"edge_index is a {type(edge_index).__name__}",
            "edges are a tensor of node ids or a sparse matrix",
            "Pass an integer tensor of shape [2, num_edges], such as torch.tensor(edges).t()",
        )
    elif edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise Node2SeqError(
            f"edge_index has dtype {edge_index.dtype}", "node ids are whole numbers", "Pass edge_index.long()"
        )
    elif edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise Node2SeqError(
            f"edge_index has shape {list(edge_index.shape)}",
            "it holds a row of source ids and a row of target ids",
            "Pass shape [2, num_edges]; a list of pairs needs .t().contiguous()",
        )
