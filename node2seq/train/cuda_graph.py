"""Epochs as a CUDA graph: recorded once, then replayed without Python or a launch for each kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch

# Epochs that run as usual first: kernels are compiled, plans built and workspaces allocated in them.
WARM_UP = 3


class Replay:
    """Runs a function again and again, as a CUDA graph once it is warm.

    What the function reads and writes must stay where it is, and it must not ask the device for a value.
    It is given with each call and not kept: whoever owns both would be kept alive by its own method, and with
    it all the memory of the recording.

    Args:
        device: The GPU that it runs on.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.replayed = 0
        self.refused: str | None = None  # why it could not be recorded; it then runs as it is

    def __call__(self, function: Callable[[], None]) -> None:
        """Run it once more.

        Args:
            function: One epoch; the same each time.
        """
        if self._stream is None:
            function()
        elif self._graph is None and self.calls < WARM_UP:
            # Beside the default stream, which cannot be recorded, so that what is warm is what is used then.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                function()
            torch.cuda.current_stream().wait_stream(self._stream)
        else:
            if self._graph is None:
                self._graph = self._record(function, self._stream)
            if self._graph is None:
                function()
            else:
                self._graph.replay()
                self.replayed += 1
        self.calls += 1

    def _record(self, function: Callable[[], None], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream):
                function()  # recorded, not run
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # something in it waits for the device; nothing of it was run
            self.refused = str(error)
            self._stream = None
            return None
        return graph
