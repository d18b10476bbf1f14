"""``node2seq explain``: a run and a node → why it is predicted so; ``explore``: a page of all its nodes."""

from __future__ import annotations

import json

from rich.console import Console
from rich.markup import escape

from node2seq.cli.commands import echo, make_table, print_line, print_table, shortened, step_teller
from node2seq.cli.flags import ExplainFlags, ExploreFlags
from node2seq.explain.explanation import Explanation, Layer, Neighbour
from node2seq.explain.page import page_of
from node2seq.explain.run import ExplainedRun, open_run
from node2seq.explain.view import Viewer, full_view
from node2seq.reporting.document import percent
from node2seq.storage import write_bytes

# Of a class's name, beside six other columns.
_WIDEST_CLASS = 16


def explain(flags: ExplainFlags) -> None:
    """Explain a node and show it."""
    run = open_run(
        flags.run,
        device=flags.device,
        both_directions=flags.both_directions,
        say=step_teller(flags.as_json),
    )
    without = [run.number(name) for name in flags.without]
    node = run.number(flags.node)
    if flags.html is not None:
        view = full_view(Viewer(run), flags.node, flags.without)
        write_bytes(flags.html, page_of(view).encode())
        echo(json.dumps({"html": str(flags.html)}) if flags.as_json else f"page: {flags.html}")
        return
    found = run.explainer.explain(node, without=without)
    if flags.as_json:
        echo(json.dumps(found.to_dict()))
    else:
        show(Console(), run, found, flags.most)


def explore(flags: ExploreFlags) -> None:
    """Open a run and serve a page that explains its nodes until interrupted."""
    from node2seq.explain.server import serve  # needs an extra that explaining a node does not

    run = open_run(
        flags.run,
        device=flags.device,
        both_directions=flags.both_directions,
        say=step_teller(False),
    )
    serve(Viewer(run), flags.port, echo)


def show(console: Console, run: ExplainedRun, found: Explanation, most: int) -> None:
    """Print the prediction, and the neighbours of each layer in their order."""
    print_line(console, f"[bold]{escape(str(found.name))}[/]: {escape(_prediction(run, found))}")
    if found.linear is not None and found.predicted is not None:
        name = escape(shortened(found.class_names[found.predicted]))
        added = f"adds {found.linear:+.3g} to the score of {name}, which is {found.score:.3g}"
        print_line(console, f"The linear model beside the layers {added}.")
    if found.without:
        names = ", ".join(str(run.explainer.name(node)) for node in found.without)
        print_line(console, f"without {escape(names)}")
    words = ["place", "node", *([] if found.predicted is None else ["class"])]
    header = [*words, "hops", "score", "contribution", "prediction without it"]
    for layer in found.layers:
        print_line(console, f"\n{escape(_title(layer, found))}")
        # The neighbours with the largest contributions in their order, then those rejected.
        lines = [_cells(run, found, neighbour) for neighbour in layer.largest(most)]
        print_table(console, make_table(header, lines, words=words, header_style=""))
        hidden = len(layer.sequence) + len(layer.rejected) - most
        if hidden > 0:
            more = f"{hidden} more with smaller contributions; --most shows more of them, --json all"
            print_line(console, more)


def _prediction(run: ExplainedRun, found: Explanation) -> str:
    if found.predicted is None:
        known = "" if found.label is None else f"; in the files it is {found.label:g}"
        return f"{found.probabilities[0]:g} is predicted{known}"
    names = [shortened(name) for name in found.class_names]
    best = sorted(range(len(names)), key=lambda each: -found.probabilities[each])[:5]
    shares = ", ".join(f"{names[each]} {percent(found.probabilities[each], ' %')}" for each in best)
    label, predicted = _label(run, found.node), names[found.predicted]
    known = "it is unlabelled" if label is None else f"in the files it is {label or 'none of the labels'}"
    if run.explainer.y.dim() > 1:
        return f"{predicted} is the most probable label, which is explained; {known} ({shares})"
    return f"{predicted} is predicted; {known} ({shares})"


def _label(run: ExplainedRun, node: int) -> str | None:
    """The class or the labels of a node in words; None where it is unlabelled."""
    names = run.label_names(node)
    return None if names is None else ", ".join(map(shortened, names))


def _title(layer: Layer, found: Explanation) -> str:
    score = "the number"
    if found.predicted is not None:
        score = f"the score of {shortened(found.class_names[found.predicted])}"
    head = f", head {layer.head}" if layer.head else ""
    taps = "1 tap" if layer.kernel_size == 1 else f"{layer.kernel_size} taps"
    taps += "" if layer.reads_order else ", the order plays no part"
    return (
        f"Layer {layer.name}{head}, readout {layer.readout}, {taps}: adds "
        f"{layer.gain:+.3g} to {score}, of which the node's own features {layer.own.contribution:+.3g} and "
        f"the bias {layer.bias.contribution:+.3g}; integration error {layer.completeness_error:.1e}"
    )


def _cells(run: ExplainedRun, found: Explanation, neighbour: Neighbour) -> list[str]:
    place = "rejected" if neighbour.position is None else str(neighbour.position + 1)
    cells = [place, escape(str(neighbour.name)) + (" (itself)" if neighbour.kind == "self" else "")]
    if found.predicted is not None:
        label = _label(run, neighbour.node)
        cells.append(escape(shortened(label or "–", _WIDEST_CLASS)))
    cells += [str(neighbour.hops), f"{neighbour.score:.3g}", f"{neighbour.contribution:+.3g}"]
    return [*cells, escape(_without(found, neighbour))]


def _without(found: Explanation, neighbour: Neighbour) -> str:
    """What is predicted without a neighbour; non-local nodes have no edge that could be removed."""
    other = next((each for each in found.counterfactuals if each.node == neighbour.node), None)
    if other is None or not neighbour.edges:
        return "–"
    if other.predicted is None:
        return f"{other.probabilities[0]:g} ({other.change:+.3g})"
    probability = percent(other.probabilities[other.predicted], " %")
    return f"{shortened(found.class_names[other.predicted], _WIDEST_CLASS)} {probability}"
