"""The layer: score → rank → convolve → read out."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter
from torch_geometric.nn import Linear
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size
from torch_geometric.utils import is_torch_sparse_tensor

from node2seq import ops
from node2seq.nn.conv.base import SequenceMessages
from node2seq.nn.conv.edge_inputs import read_edges
from node2seq.nn.conv.inputs import (
    EdgeInputs,
    Inputs,
    check_features,
    check_not_traced,
    check_options,
    check_size,
    entries_of,
    has_message_hooks,
    is_sparse,
    sequences_of,
)
from node2seq.nn.conv.ranks import RankOptions, Trace, complete_ranks, convolve_heads, rank_softly


def _compiled_as_a_whole(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves sparse tensors, and attention weights, to eager mode.

    torch.compile cannot read the first, and would compile some parts of the layer without the others. Of the
    second there are as many as distinct edges, which it does not know.
    """
    uncompiled: Any = torch.compiler.disable(forward)

    @wraps(forward)
    def run(self: nn.Module, x: Any, edge_index: Adj, *args: Any, **kwargs: Any) -> Any:
        is_left = is_torch_sparse_tensor(edge_index) or kwargs.get("return_attention_weights", False)
        chosen = uncompiled if is_left else forward
        return chosen(self, x, edge_index, *args, **kwargs)

    return run


class Node2SeqConv(SequenceMessages):
    r"""The Node2Seq layer from the `"Node2Seq: Towards Trainable Convolutions in Graph Neural Networks"
    <https://arxiv.org/abs/2101.01849>`_ paper: each node sorts its neighbours by attention and runs a 1D
    convolution over the sorted sequence.

    .. math::
        \bar{\mathbf{x}}_i = \mathbf{W}_1 \mathbf{x}_i, \qquad
        s_{ij} = \bar{\mathbf{x}}_i^{\top} \bar{\mathbf{x}}_j, \qquad
        (j_1, \ldots, j_{k_i}) = \mathrm{argsort}^{\downarrow}_{j \in \mathcal{N}(i) \cup \{i\}} s_{ij}

    .. math::
        \hat{\mathbf{x}}_i = \mathbf{W}_2 \bar{\mathbf{x}}_i + \mathrm{readout}_{p} \sum_{t=0}^{K-1}
        \mathbf{\Theta}_t^{\top} \bar{\mathbf{x}}_{j_{p+t}} + \mathbf{b}

    Equal scores are ordered by the larger own score :math:`s_{jj}`, then by the smaller id. A sequence
    shorter than the kernel is padded with zeros at its end. No gradient passes through the order.

    With ``readout="ranks"`` the convolution does not slide. Each rank has its own matrix, and one more matrix
    takes the mean of all neighbours:

    .. math::
        \hat{\mathbf{x}}_i = \mathbf{W}_2 \bar{\mathbf{x}}_i + \sum_{t=0}^{K-1} \mathbf{\Theta}_t^{\top}
        \sum_j p_t(i, j) \, \bar{\mathbf{x}}_j + \mathbf{\Theta}_K^{\top} \frac{1}{k_i} \sum_j
        \bar{\mathbf{x}}_j + \mathbf{b}

    Hard ranks have :math:`p_t(i, j) = 1` for the neighbour at rank :math:`t`. Soft ranks, as in the `"Neural
    Nearest Neighbors Networks" <https://arxiv.org/abs/1810.12575>`_ paper, are learned:
    :math:`p_t(i, \cdot)` is the softmax of :math:`a_t(i, \cdot)` over the neighbours,
    :math:`a_0 = s / (\sqrt{d} \, \tau)` for scores of :math:`d` channels and a temperature :math:`\tau`, and
    each rank takes what those before it left, :math:`a_{t+1} = a_t + \log(1 - p_t)`. Ranks beyond the last
    neighbour are zero.

    With more than one hop, neighbours whose score is not above the threshold make room for the best nodes
    within that many hops; each sequence keeps its length.

    An edge may carry a weight :math:`w` and attributes :math:`\mathbf{a}`. Its score is then
    :math:`\bar{\mathbf{x}}_i^{\top} (\bar{\mathbf{x}}_j + \mathbf{W}_e \mathbf{a})`, and the row that is
    convolved :math:`w (\bar{\mathbf{x}}_j + \mathbf{W}_e \mathbf{a})`: attributes enter both, as in
    :class:`torch_geometric.nn.TransformerConv`, and weights the row alone. Parallel edges have an entry each
    then, and so they have with ``edge_order``; where these tie, the one that is listed first goes first.
    Where edges carry nothing, a duplicate counts once. The self entry has weight 1 and no attributes, and
    replaces listed self loops; non-local nodes have weight 1 and no attributes too.

    Args:
        in_channels (int or tuple): Size of each input sample, or :obj:`-1` to derive it from the first input.
            A tuple gives the source and target nodes of a bipartite graph a projection each; with
            ``root="input"`` only the order depends on the targets', which then receives no gradient.
        out_channels (int): Size of each output sample.
        kernel_size (int): Number of taps :math:`K` of the convolution. (default: :obj:`3`)
        readout (str): How the windows are combined: :obj:`"max"`, :obj:`"mean"` or :obj:`"sum"`; or
            :obj:`"ranks"` for no windows but a matrix for each of the first :math:`K` ranks, as above.
            (default: :obj:`"max"`)
        hops (int): How far away neighbours may be. :obj:`1` is the plain layer. (default: :obj:`1`)
        threshold (float): With several hops, a neighbour stays only if its score is larger.
            (default: :obj:`0.0`)
        root (str): What :math:`\mathbf{W}_2` applies to: :obj:`"projected"`, as in the equation above,
            :obj:`"input"` for :math:`\mathbf{x}_i`, or :obj:`"none"` to add no own features.
            (default: :obj:`"projected"`)
        nonlocal_order (str): With several hops, rank all chosen nodes together (:obj:`"joint"`) or neighbours
            before the others (:obj:`"local-first"`). (default: :obj:`"joint"`)
        max_candidates (int, optional): With several hops: from how many nodes further away each node chooses
            at most, where all of them would take too long. They are the ends of as many random walks, drawn
            once for a graph. (default: :obj:`None`)
        order (str): What the chosen neighbours are sorted by: :obj:`"attention"`, as above;
            :obj:`"degree"`, a fixed order by the number of sequences that a node stands in, ties by these
            sequences' lengths together, then by id, like the node ranking of PATCHY-SAN; :obj:`"random"`,
            a fixed order drawn once when the parameters are; or :obj:`"edge"`, the number on each edge that
            ``forward`` gets as ``edge_order``, largest first, such as its time. Non-local nodes have no such
            number and come last. (default: :obj:`"attention"`)
        self_position (str): With ``order="edge"``: whether the self entry, which is no edge, goes
            :obj:`"first"` or :obj:`"last"`, or there is :obj:`"none"`. (default: :obj:`"first"`)
        taps (str): What each tap of the convolution is: a matrix (:obj:`"full"`, as above), one weight per
            channel (:obj:`"depthwise"`) or one weight (:obj:`"scalar"`). The last two start at
            :math:`1 / K`, the mean of each window, and have far fewer weights to learn from few labels.
            (default: :obj:`"full"`)
        edge_dim (int, optional): Size of each edge's attributes, or :obj:`-1` to derive it from the first
            input; :obj:`None` for edges without. (default: :obj:`None`)
        soft (bool, optional): For ranks: whether they are soft, so that the scores get a gradient. By default
            they are where the order is by attention; other orders have no scores to learn.
            (default: :obj:`None`)
        scores (str, optional): For soft ranks: whether neighbours are scored by projections of the input for
            that alone (:obj:`"own"`) or by :math:`\bar{\mathbf{x}}` (:obj:`"shared"`).
            (default: :obj:`"own"` for soft ranks)
        score_channels (int): Size of such projections. (default: :obj:`8`)
        temperature (float): For soft ranks: what the scores are divided by besides the root of their
            channels. (default: :obj:`1.0`)
        heads (int): For soft ranks: how many there are side by side, each with its own scores and matrices.
            The output has ``heads * out_channels`` channels. (default: :obj:`1`)
        add_self_loops (bool): Whether a node is its own neighbour. Set to :obj:`False` between different node
            types. (default: :obj:`True`)
        bias (bool): Whether to learn an additive bias. (default: :obj:`True`)
        backend (str): :obj:`"auto"`, :obj:`"native"`, :obj:`"triton"`, :obj:`"eager"` or
            :obj:`"reference"`; see :mod:`node2seq.ops`. (default: :obj:`"auto"`)
        validate (bool): Whether to look for NaN and infinite features in each forward pass.
            (default: :obj:`False`)
        **kwargs (optional): Additional arguments of :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, C)` or
          :math:`((|\mathcal{V}_s|, C_s), (|\mathcal{V}_t|, C_t))` if bipartite, each with a leading dimension
          for several graphs with the same edges, edge indices
          :math:`(2, |\mathcal{E}|)` or a sparse adjacency :math:`(|\mathcal{V}_t|, |\mathcal{V}_s|)`,
          edge weights :math:`(|\mathcal{E}|)`, edge attributes :math:`(|\mathcal{E}|, D_e)`, numbers to
          sort the edges by :math:`(|\mathcal{E}|)`
        - **output:** node features :math:`(|\mathcal{V}_t|, D)`; with ``return_trace=True`` also a
          :class:`Trace`
    """

    order_seed: Tensor | None

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        kernel_size: int = 3,
        *,
        readout: str = "max",
        hops: int = 1,
        threshold: float = 0.0,
        root: str = "projected",
        nonlocal_order: str = "joint",
        max_candidates: int | None = None,
        order: str = "attention",
        self_position: str = "first",
        taps: str = "full",
        edge_dim: int | None = None,
        soft: bool | None = None,
        scores: str | None = None,
        score_channels: int = 8,
        temperature: float = 1.0,
        heads: int = 1,
        add_self_loops: bool = True,
        bias: bool = True,
        backend: str = "auto",
        validate: bool = False,
        **kwargs: Any,
    ) -> None:
        check_options(
            in_channels,
            backend,
            threshold,
            kwargs,
            kernel_size=kernel_size,
            hops=hops,
            out_channels=out_channels,
            readout=readout,
            root=root,
            nonlocal_order=nonlocal_order,
            max_candidates=max_candidates,
            order=order,
            self_position=self_position,
            taps=taps,
            edge_dim=edge_dim,
        )
        given = RankOptions(soft, scores, score_channels, temperature, heads)
        ranks = complete_ranks(given, readout, order)
        super().__init__(aggr=None, node_dim=0, **kwargs)
        # MessagePassing orders pairs by the rows of edge_index; the flow says which of them is the source.
        self._source, self._target = (0, 1) if self.flow == "source_to_target" else (1, 0)
        self.in_channels = in_channels if isinstance(in_channels, int) else tuple(in_channels)
        self.out_channels, self.kernel_size = out_channels, kernel_size
        self.readout, self.hops, self.max_candidates = readout, hops, max_candidates
        self.threshold: float | Tensor = float(threshold)  # or one for each of R runs, [R]
        self.root, self.taps, self.edge_dim = root, taps, edge_dim
        self.order, self.self_position, self.nonlocal_order = order, self_position, nonlocal_order
        self.soft, self.scores, self.score_channels, self.temperature, self.heads = ranks
        self.add_self_loops = add_self_loops and self_position != "none"
        self.backend, self.validate = backend, validate
        self._make_parameters(bias)
        self.reset_parameters()

    def _make_parameters(self, bias: bool) -> None:
        """All that is learned, and the seed of a random order; not drawn yet."""
        is_pair, out, heads = isinstance(self.in_channels, tuple), self.out_channels, self.heads
        pair = self.in_channels if isinstance(self.in_channels, tuple) else (self.in_channels,) * 2
        sources, targets = pair[self._source], pair[self._target]
        self.lin = _linear(sources, out)
        self.lin_dst = _linear(targets, out) if is_pair else None
        self.lin_edge = None if self.edge_dim is None else _linear(self.edge_dim, out)
        widths = {"full": (out, out), "depthwise": (out,), "scalar": ()}[self.taps]
        self.weight = Parameter(torch.empty(heads * self._taps_per_head, *widths))
        own = out if self.root == "projected" else targets
        self.lin_root: Any = None if self.root == "none" else _linear(own, heads * out)
        self.bias = Parameter(torch.empty(heads * out)) if bias else None
        has_scores, width = self.soft and self.scores == "own", heads * self.score_channels
        self.lin_query = _linear(targets, width) if has_scores else None
        self.lin_key = _linear(sources, width) if has_scores else None
        with_edges = has_scores and self.edge_dim is not None
        self.lin_edge_key = _linear(self.edge_dim or 0, width) if with_edges else None
        seed = torch.zeros((), dtype=torch.int64) if self.order == "random" else None
        self.register_buffer("order_seed", seed)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        super().reset_parameters()
        self.lin.reset_parameters()
        others = (self.lin_dst, self.lin_edge, self.lin_root, self.lin_query, self.lin_key, self.lin_edge_key)
        for lin in others:
            if lin is not None:
                lin.reset_parameters()
        if self.taps == "full":
            bound = (self._taps_per_head * self.out_channels) ** -0.5  # as torch.nn.Conv1d
            torch.nn.init.uniform_(self.weight, -bound, bound)
        else:  # the mean of each window
            torch.nn.init.constant_(self.weight, 1 / self._taps_per_head)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        if self.order_seed is not None:
            self.order_seed.fill_(int(torch.randint(2**62, (), device="cpu")))

    @property
    def reads_order(self) -> bool:
        """Whether the order of the neighbours plays a part: one tap that slides meets each of them alone."""
        return self.readout == "ranks" or self.kernel_size > 1 or self.hops > 1

    @property
    def _taps_per_head(self) -> int:
        """One for each place in a window, or for each rank and the mean of all."""
        return self.kernel_size + (self.readout == "ranks")

    @_compiled_as_a_whole
    def forward(
        self,
        x: Tensor | OptPairTensor,
        edge_index: Adj,
        edge_weight: OptTensor = None,
        edge_attr: OptTensor = None,
        *,
        edge_order: OptTensor = None,
        size: Size = None,
        return_trace: bool = False,
        return_attention_weights: bool = False,
    ) -> Any:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor or (torch.Tensor, torch.Tensor)): The node features. The targets' may be
                :obj:`None` where nothing depends on them: with one hop, ``root="none"`` and an order that is
                not learned.
            edge_index (torch.Tensor or SparseTensor): The edges.
            edge_weight (torch.Tensor, optional): The weight of each edge. A sparse adjacency holds weights
                as its values, unless these are all ones.
            edge_attr (torch.Tensor, optional): The attributes of each edge, for a layer with ``edge_dim``. A
                sparse adjacency holds them as the rows of its values.
            edge_order (torch.Tensor, optional): The number of each edge that its target sorts it by, for a
                layer with ``order="edge"``. Of float64 or whole numbers where 32 bits are too few, as for
                the seconds of a timestamp.
            size ((int, int), optional): The number of nodes on each side of a bipartite graph.
            return_trace (bool): Whether to return a :class:`Trace` as well.
            return_attention_weights (bool): Whether to return ``(edge_index, scores)`` as well: the edges
                that the layer convolved over, self entries and non-local nodes among them, each target's
                together and best first, and the score of each.
        """
        given = self._read(x, edge_index, edge_weight, edge_attr, edge_order, size)
        wants_more = return_trace or return_attention_weights
        with given.full_precision:
            whole = None if wants_more else self._in_one_step(given)
            if whole is not None:
                return whole
            query, key = self._project(given, size)  # eq. 1: X̄ = X W1, [N, D] and [M, D]
            sequences, edges = self._sequences(edge_index, key, query, given.values)
            ranking, ranks = self._rank(given, query, key, sequences, edges)  # eqs. 2 to 4
            out, winner = self._convolve(given, query, key, ranking, ranks, sequences, edges, return_trace)
            out = self._add_own(given, out, query)  # eq. 7
        dtype = torch.promote_types(given.x_src.dtype, given.weight.dtype)
        if out.dtype != dtype:
            out = out.to(dtype)
        if not wants_more:
            return out
        graphs = key.shape[:-2].numel() * self.heads
        trace = Trace.of(ranking, winner, edges, graphs, ranks) if return_trace else None
        scores = self._edges_and_scores(ranking) if return_attention_weights else None
        return out, *(extra for extra in (trace, scores) if extra is not None)

    def _read(
        self,
        x: Tensor | OptPairTensor,
        edge_index: Adj,
        edge_weight: OptTensor,
        edge_attr: OptTensor,
        edge_order: OptTensor,
        size: Size,
    ) -> Inputs:
        """Checks what the layer is called with, and chooses the way that it takes."""
        check_not_traced()
        check_size(size)
        is_bare = edge_weight is None and edge_attr is None and edge_order is None and self.lin_edge is None
        values = None
        if not is_bare or self.order == "edge" or is_sparse(edge_index):
            carried = (edge_index, edge_weight, edge_attr, edge_order)
            values = read_edges(*carried, self.lin_edge, self.order, self.validate)
        lin = self.lin
        x_src, x_dst = check_features(self, lin, x, size)
        is_plain = not has_message_hooks(self) and type(self).message is SequenceMessages.message
        is_shared = self.lin_dst is None and x_dst is x_src
        has_windows = is_plain and self.readout != "ranks"
        fuses = has_windows and is_shared and self.root == "projected" and values is None
        root = ops.root_of(self.lin_root, self.bias) if fuses else None
        dtype = ops.storage_dtype(x_src)
        windows = (self.kernel_size, self.readout, root is not None, dtype)
        return Inputs(
            x_src,
            x_dst,
            edge_index,
            values,
            is_plain,
            is_shared,
            root,
            ops.Convolution(*windows) if has_windows else None,
            dtype,
            lin,
            ops.full_precision(x_src.device),
            ops.choose_backend(self.backend, x_src, ops.product_dtype(x_src, lin)),
            self.tap_matrices(),
        )

    def _in_one_step(self, given: Inputs) -> Tensor | None:
        """All equations at once, if nothing in the options or the backend stands against it."""
        root, then, backend = given.root, given.then, given.backend
        if root is None or then is None or self.hops > 1 or self.order != "attention":
            return None
        if not hasattr(backend, "layer"):
            return None
        x = given.x_src
        step = ops.find_layer(backend, given.lin, x, given.weight, root)
        return None if step is None else step(self._sequences(given.edge_index, x, x, None)[0], then)

    def _project(self, given: Inputs, size: Size) -> tuple[Tensor, Tensor]:
        """Each side's projections; of targets without features, zeros that nothing depends on."""
        key = ops.project(given.lin, given.x_src, given.backend)
        if given.is_shared:
            return key, key
        if given.x_dst is not None:
            return ops.project(self.lin_dst or given.lin, given.x_dst, given.backend), key
        targets = None if size is None else size[self._target]
        if targets is None:
            edge_index: Any = given.edge_index
            targets = edge_index.size(0) if is_sparse(edge_index) else key.size(-2)
        return key.new_zeros(*key.shape[:-2], targets, key.size(-1)), key

    def _rank(
        self,
        given: Inputs,
        query: Tensor,
        key: Tensor,
        sequences: ops.Sequences,
        edges: ops.EdgeValues | None,
    ) -> tuple[ops.Ranking, ops.Ranks | None]:
        """The order of each target's neighbours, and for ranks how much of each stands at each of them."""
        if self.soft:
            ranks = rank_softly(self, given, query, key, sequences, edges)
            return ranks.ranking, ranks
        ranking = ops.rank(
            query,
            key,
            sequences,
            hops=self.hops,
            # Traced where nobody reads it, it would be one of the compiled graph's inputs all the same.
            threshold=self.threshold if self.hops > 1 else 0.0,
            joint=self.nonlocal_order == "joint",
            max_candidates=self.max_candidates,
            order="edge-self-last" if self.self_position == "last" else self.order,
            seed=self.order_seed,
            edges=edges,
            then=given.then,
            backend=given.backend,
        )
        if self.readout != "ranks":
            return ranking, None
        ranks = ops.hard_ranks(ranking, self.kernel_size, self.hops, key.dtype)
        return ranks.ranking, ranks

    def _convolve(
        self,
        given: Inputs,
        query: Tensor,
        key: Tensor,
        ranking: ops.Ranking,
        ranks: ops.Ranks | None,
        sequences: ops.Sequences,
        edges: ops.EdgeValues | None,
        with_winner: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Equations 5 and 6: what is read out of windows or of ranks, and the winning windows."""
        weight, edge_index = given.weight, given.edge_index
        if ranks is not None:
            taken = (query, key, sequences, weight, ranks, edges, given.dtype)
            return convolve_heads(self, self.heads, *taken, None if given.is_plain else edge_index), None
        if given.is_plain:
            root, dtype = given.root, given.dtype
            return ops.convolve(key, weight, ranking, self.readout, root, edges, dtype, with_winner)
        return self.convolve_messages(edge_index, query, key, weight, ranking, self.readout, edges)

    def _add_own(self, given: Inputs, out: Tensor, query: Tensor) -> Tensor:
        """What is added for each node's own features, and the bias, unless the convolution did."""
        if given.root is not None:
            return out
        own = given.x_dst if self.root == "input" else query
        if self.lin_root is not None and own is not None:
            out = out + ops.project(self.lin_root, own)
        return ops.add_bias(out, self.bias)

    def _edges_and_scores(self, ranking: ops.Ranking) -> tuple[Tensor, Tensor]:
        """The edges that the layer convolved over, and the score of each."""
        pair = [ranking.node, ranking.sequences.rows.target]
        return torch.stack(pair if self._source == 0 else pair[::-1]), ranking.score

    def _sequences(
        self, edge_index: Adj, key: Tensor, query: Tensor, values: EdgeInputs | None
    ) -> tuple[ops.Sequences, ops.EdgeValues | None]:
        """Each target's neighbours, and what the edges from them carry."""
        nodes, choices = (key.size(-2), query.size(-2)), (int(self.add_self_loops), int(values is None))
        graph = ops.GraphNumbers(int(self._source == 0), *nodes, *choices)
        sequences = sequences_of(edge_index, graph, hops=self.hops, backend=self.backend)
        if values is None:
            return sequences, None
        weight, attr, order = values
        weight = None if weight is None else weight.to(key.dtype)
        if self.lin_edge is not None and attr is not None:
            attr = ops.project(self.lin_edge, attr).to(key.dtype)
        return sequences, ops.EdgeValues(entries_of(edge_index, graph), weight, attr, order)

    def tap_matrices(self) -> Tensor:
        """The taps of the convolution as one matrix each, whatever they are made of, [K, D, D].

        For ``readout="ranks"`` one for each rank and one for the mean of all; of several heads one head after
        the other.
        """
        weight = self.weight
        if self.taps == "full":
            return weight
        if self.taps == "scalar":
            weight = weight[..., None].expand(*weight.shape, self.out_channels)
        return torch.diag_embed(weight)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size})"
        )


def _linear(in_channels: int, out_channels: int) -> Linear:
    return Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
