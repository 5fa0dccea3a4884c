from tests.unit.conftest import stage

__all__ = ["stage"]
