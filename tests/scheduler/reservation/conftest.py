import pytest

from scheduler.models import GPU
from tests.scheduler.factories import GB, make_gpu, make_node


@pytest.fixture
def gpus(db: None) -> list[GPU]:
    """Two small and two large GPUs of one node that is up."""
    node = make_node()
    return [make_gpu(node, mb * GB) for mb in (24, 24, 48, 48)]
