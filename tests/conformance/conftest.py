import pytest


@pytest.fixture(autouse=True)
def on_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pytest compare whole sequences where an assertion fails, as it does on CI: suites must fail soon there as well."""
    monkeypatch.setenv("CI", "true")
