import pytest
import situ


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with situ.open(path) as store:
        yield store
