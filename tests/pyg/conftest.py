import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other over a few nodes cost eight times the work on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
