"""`make weigh`: the figures of a small tree."""

from pathlib import Path

from tests.weigh import table, weigh


def test_a_small_tree_is_weighed(tmp_path: Path) -> None:
    package, docs = tmp_path / "streamrt" / "shop", tmp_path / "docs"
    package.mkdir(parents=True)
    docs.mkdir()
    (tmp_path / "streamrt" / "app.py").write_text('"""What runs."""\n\nclass App:\n    pass\n')
    (package / "app.py").write_text(
        '"""Orders.\n\nThey are no goods.\n"""\n\n'
        "class Order: ...  # kept alone\n\n"
        "class Paid(Order):\n"
        '    """A paid one."""\n\n'
        "    def pay(self) -> None:\n"
        "        return None\n\n"
        "    def send_goods(self) -> str:\n"
        '        return """two\nlines"""\n'
    )
    (docs / "page.md").write_text("x" * 201 + "\nNobody is here, too.\n\n```python\nalone  # texts\n```\n")
    figures = weigh(tmp_path)
    assert figures["lines of code"] == {"streamrt/shop": 7, "streamrt": 2, "all": 9}
    assert figures["names and classes"] == {
        "functions with a name of one word, percent": 50,
        "classes with exactly one subclass": 1,
        "longest chain of classes": 2,
        "file names that occur twice or more": 1,
    }
    phrases = figures["phrases in docstrings, comments and docs"]
    assert {name: count for name, count in phrases.items() if count} == {
        '"is no" before a noun': 1,
        '"alone" for only': 1,
        '", too" at the end': 1,
        'docstrings that begin with "What"': 1,
        "lines of docs above 200 characters": 1,
    }


def test_figures_stand_beside_those_of_the_last_release() -> None:
    shown = table({"code": {"here": 1_200}}, {"code": {"here": 1_000, "gone": 5}}).splitlines()
    assert [line.split()[-3:] for line in shown] == [
        ["now", "before", "change"],
        ["1,200", "1,000", "+200"],
        ["0", "5", "-5"],
    ]
