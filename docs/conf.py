"""The settings of the documentation site, which `make docs` builds from the pages of the repository and from docstrings."""

import functools
import gc
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.domains.python import PythonDomain

sys.path.append(str(Path(__file__).parent))
# The trees of pages live until the end: looking for garbage in them takes a fifth of the time.
gc.set_threshold(300_000)

project = "StreamRT"
html_title = project
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
# The tables of rows are test output, and the front page of the repository is not one of the site. What has no pages is not
# searched for them, which would take longer than the rest.
exclude_patterns = ["README.md", "docs/*-rows.md", ".*", "build", "tests", "streamrt"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "llms"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
html_theme = "furo"
html_search_scorer = str(Path(__file__).with_name("search.js"))
# Quotes stay as they are written: to give them another form takes 7 % of the build.
smartquotes = False
html_show_copyright = html_show_sphinx = html_copy_source = False

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

_LINK = re.compile(r"\[([^\]]+)\]\((https?://[^)]+)\)")
_PAGE = re.compile(r"(?<![`\w/])docs/([\w/-]+)\.md")
_CODE = re.compile(r"(?<![`\w])`((?:[^`\n]|\n(?!\n))+)`(?!`)")


def _translate_prose(text: str) -> str:
    """Translate code and links. Names of pages become links, so the name of a missing page fails the build."""
    return _PAGE.sub(r":doc:`\g<0> </docs/\1>`", _LINK.sub(r"`\1 <\2>`_", _CODE.sub(r"``\1``", text)))


def translate_markdown(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the Markdown of a docstring, which editors show, into the reStructuredText that Sphinx reads."""
    # Every second part is the code between two fences.
    parts = re.split(r"^( *)```(.*)\n((?:.*\n)*?) *```$", "\n".join(lines), flags=re.MULTILINE)
    made = [_translate_prose(parts[0])]
    for indent, language, code, text in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True):
        made += [f"{indent}.. code-block:: {language or 'text'}\n\n", re.sub("^(?=.)", "   ", code, flags=re.MULTILINE)]
        made.append(_translate_prose(text))
    lines[:] = "".join(made).split("\n")


def hide_decisions(app: Any, env: Any) -> None:
    """Keep the pages of decisions out of the search: they are for those who change StreamRT."""
    for page in env.found_docs:
        if page.startswith("docs/decisions/"):
            env.metadata[page]["nosearch"] = ""


def remember_names(app: Any, env: Any) -> None:
    """Look for each name of an annotation once, now that all pages are read: Sphinx searches all objects each time."""
    PythonDomain.find_obj = functools.cache(PythonDomain.find_obj)


_navigation: dict[str, str] = {}


def share_navigation(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Make the navigation once for each folder, since only the current page differs: it takes a quarter of the time."""
    folder, name = posixpath.split(page)
    make = context["toctree"]

    def make_once(**options: Any) -> str:
        if folder not in _navigation:
            made = make(**options).replace('<ul class="current">', "<ul>").replace('href="#"', f'href="{name}.html"')
            _navigation[folder] = made.replace(' current"', '"').replace('"current ', '"')
        return _navigation[folder]

    context["toctree"] = make_once


def mark_page(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mark the current page in the navigation, after Furo has made it."""
    link = f'"toctree-l1"><a class="reference internal" href="{posixpath.basename(page)}.html"'
    marked = '"toctree-l1 current current-page"><a class="current reference internal" href="#"'
    context["furo_navigation_tree"] = context["furo_navigation_tree"].replace(link, marked)


_CELL = re.compile(r"<td>.*?</td>", re.DOTALL)
_CODE_WORD = re.compile(r'(?<=<span class="pre">)[^<]*')


def break_names(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let long names in tables break where their parts end: otherwise, the last columns of wide tables are not seen."""

    def break_cell(cell: re.Match[str]) -> str:
        return _CODE_WORD.sub(lambda word: re.sub(r"(?<=\w)([_.=])(?=\w)", r"\1<wbr>", word[0]), cell[0])

    if "body" in context:
        context["body"] = _CELL.sub(break_cell, context["body"])


def setup(app: Any) -> dict[str, bool]:
    """Translate docstrings before Google's sections are read; several processes may do so."""
    app.connect("autodoc-process-docstring", translate_markdown, priority=1)
    app.connect("env-updated", hide_decisions)
    app.connect("env-updated", remember_names)
    app.connect("html-page-context", share_navigation, priority=400)
    app.connect("html-page-context", mark_page, priority=600)
    app.connect("html-page-context", break_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
