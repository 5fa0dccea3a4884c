"""Topics of tables with a primary key that an application would give more partitions."""

import pytest

from streamrt import Application
from streamrt.application.table_partitions import require_direct_tables
from streamrt.errors import CatalogError, TopicConfigurationError
from streamrt.tables import Catalog, MemoryCatalog


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog(store=MemoryCatalog())
    for name in ("people", "places"):
        made.create_table(name, "id BIGINT, PRIMARY KEY (id)", topic=name, maintained=name == "people")
    made.create_table("log", "id BIGINT", topic="log")
    return made


def test_rows_of_maintained_tables_stay_in_their_partitions(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    require_direct_tables(["log", "other"], catalog.infos())
    assert caplog.text == ""
    require_direct_tables(["log", "places"], catalog.infos())
    assert "writers refuse the table once it has more of them" in caplog.text
    with pytest.raises(TopicConfigurationError, match=r"topic 'people' of the maintained table 'default\.people'"):
        require_direct_tables(["people"], catalog.infos())


def test_a_catalogue_that_does_not_answer(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise CatalogError("the catalogue does not answer")

    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    app.dataframe(app.topic("in"))
    app._tables.require_direct(["in"])
    monkeypatch.setattr(catalog, "infos", refuse)
    app._tables.require_direct([])
    app._tables.require_direct(["in"])
    assert "whether in are topics of tables is not known" in capsys.readouterr().err
    app.dataframe("default.log")
    with pytest.raises(CatalogError, match="does not answer"):
        app._tables.require_direct(["log"])
