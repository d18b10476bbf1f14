"""What edges carry as a layer is handed it, checked: weights, attributes, and numbers to sort them by."""

from typing import Any

from torch import Tensor
from torch_geometric.nn import Linear

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.inputs import EdgeInputs, check_width, is_sparse, values_of
from node2seq.ops.plan_cache import PlanCache


def read_edges(
    edge_index: Any,
    edge_weight: Any,
    edge_attr: Any,
    edge_order: Any,
    lin_edge: Linear | None,
    order: str,
    validate: bool,
) -> EdgeInputs | None:
    """The weights, the attributes and the numbers of edges, checked; nothing where they carry nothing.

    Args:
        edge_index: The edges; a sparse adjacency may hold their weights or attributes.
        edge_weight: The weight of each edge.
        edge_attr: The attributes of each edge.
        edge_order: The number of each edge.
        lin_edge (Linear, optional): What attributes are projected with.
        order (str): What the layer sorts by.
        validate (bool): Whether to look for NaN and infinity.
    """
    edge_weight, edge_attr = check_edges(edge_index, edge_weight, edge_attr, lin_edge, validate)
    edge_order = check_edge_order(edge_index, edge_order, order)
    if edge_weight is None and edge_attr is None and edge_order is None:
        return None
    if ops.is_exporting():
        raise Node2SeqError(
            "edge_weight, edge_attr or edge_order in what is exported",
            "the layer is exported for edges that carry nothing",
            "Use torch.compile instead",
        )
    return edge_weight, edge_attr, edge_order


def check_edges(
    edge_index: Any, edge_weight: Any, edge_attr: Any, lin_edge: Linear | None, validate: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The weights and the attributes of the edges, or an error if the layer cannot work on them.

    Args:
        edge_index: The edges; a sparse adjacency may hold their weights or attributes.
        edge_weight: The weight of each edge.
        edge_attr: The attributes of each edge.
        lin_edge (Linear, optional): What attributes are projected with.
        validate (bool): Whether to look for NaN and infinity.
    """
    for name, given in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
        if given is not None and not isinstance(given, Tensor):
            raise Node2SeqError(
                f"{name} is a {type(given).__name__}",
                "it is a tensor with a row for each edge",
                "Pass a tensor; the number of nodes goes by name, as size=(num_sources, num_targets)",
            )
    is_matrix = is_sparse(edge_index)
    if is_matrix and (edge_weight is not None or edge_attr is not None):
        raise Node2SeqError(
            "edge_weight or edge_attr beside a sparse adjacency",
            "the edges of a matrix have an order of their own",
            "Pass them as the values of the matrix, or pass edge_index",
        )
    values = values_of(edge_index) if is_matrix else None
    if values is not None:
        edge_weight, edge_attr = (values, None) if values.dim() == 1 else (None, values)
    if edge_attr is not None and edge_attr.dim() == 1:
        edge_attr = edge_attr[:, None]
    if (edge_attr is None) != (lin_edge is None):
        raise Node2SeqError(
            "no edge_attr" if edge_attr is None else f"edge_attr of shape {list(edge_attr.shape)}",
            f"the layer was made with{'out' if lin_edge is None else ''} edge_dim",
            "Pass the attributes of the edges, or make the layer with edge_dim=None"
            if edge_attr is None
            else f"Make the layer with edge_dim={edge_attr.size(-1)}",
        )
    for name, given, wanted in (
        ("edge_weight", edge_weight, "[num_edges]"),
        ("edge_attr", edge_attr, "[num_edges, edge_dim]"),
    ):
        if given is not None:
            check_edge_values(name, given, wanted, edge_index)
            _check_finite(name, given, validate)
    if edge_attr is not None and lin_edge is not None:
        check_width("edge_attr", edge_attr, lin_edge, "edge_dim")
    return edge_weight, edge_attr


_HAS_NAN = PlanCache()  # where the first of some numbers is that is none


def check_edge_order(edge_index: Any, edge_order: Any, order: str) -> Tensor | None:
    """The numbers that edges are sorted by, or an error if the layer cannot work on them.

    Args:
        edge_index: The edges.
        edge_order: The number of each edge.
        order (str): What the layer sorts by.
    """
    if (order == "edge") != (edge_order is not None):
        raise Node2SeqError(
            "no edge_order" if edge_order is None else f"edge_order for a layer with order={order!r}",
            "order='edge' sorts the edges of each node by it"
            if edge_order is None
            else "it is what order='edge' sorts by",
            "Pass edge_order, a number for each edge, such as its time"
            if edge_order is None
            else "Leave it out, or make the layer with order='edge'",
        )
    if edge_order is None:
        return None
    if not isinstance(edge_order, Tensor):
        raise Node2SeqError(
            f"edge_order is a {type(edge_order).__name__}",
            "it is a tensor with a number for each edge",
            "Pass a tensor, such as torch.tensor(times)",
        )
    if is_sparse(edge_index):
        raise Node2SeqError(
            "edge_order beside a sparse adjacency",
            "the edges of a matrix have an order of their own",
            "Pass edge_index",
        )
    check_edge_values("edge_order", edge_order, "[num_edges]", edge_index)
    if not ops.is_tracing() and edge_order.is_floating_point():
        first = _HAS_NAN.get(edge_order, None, lambda: edge_order.isnan().nonzero()[:1].view(-1).tolist())
        if first:
            raise Node2SeqError(
                f"edge_order[{first[0]}] is NaN",
                "it can be sorted neither before nor behind a number",
                "Drop such edges, or give them a number that puts them last",
            )
    return edge_order.detach() if edge_order.requires_grad else edge_order


def check_edge_values(name: str, values: Tensor, wanted: str, edge_index: Any) -> None:
    """Raises an error if these are no values of edges.

    Args:
        name (str): What they are called.
        values (torch.Tensor): The values.
        wanted (str): Their shape, in words.
        edge_index: The edges; how many a sparse adjacency has is not looked at.
    """
    is_list = isinstance(edge_index, Tensor) and not is_sparse(edge_index) and edge_index.dim() == 2
    edges, device = (edge_index.size(1), edge_index.device) if is_list else (None, None)
    if values.dim() != wanted.count(",") + 1 or (edges is not None and values.size(0) != edges):
        raise Node2SeqError(
            f"{name} has shape {list(values.shape)}",
            "it has a row for each edge" if edges is None else f"there are {edges} edges",
            f"Pass shape {wanted}, in the order of edge_index",
        )
    if values.is_complex() or (name == "edge_attr" and not values.is_floating_point()):
        raise Node2SeqError(
            f"{name} has dtype {values.dtype}",
            "edges are sorted by it" if name == "edge_order" else "it enters products with weights",
            f"Pass {name}.float()",
        )
    if device is not None and values.device != device:
        raise Node2SeqError(
            f"{name} on {values.device}", f"the edges are on {device}", f"Pass {name}.to(edge_index.device)"
        )


def _check_finite(name: str, values: Tensor, validate: bool) -> None:
    if validate and not ops.is_tracing() and not bool(values.isfinite().all()):
        edge = int((~values.isfinite()).nonzero()[0, 0])
        raise Node2SeqError(
            f"{name}[{edge}] is not finite",
            "it would spread to every node that the edge leads to",
            "Replace missing values before training, for instance with torch.nan_to_num",
        )
