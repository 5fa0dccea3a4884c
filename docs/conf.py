"""The settings of the documentation site, which `make docs` builds from the pages of the repository and from docstrings."""

import re
from typing import Any

project = "StreamRT"
html_title = project
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
# The tables of rows are test output, and the front page of the repository is not one of the site. What has no pages is not
# searched for them, which would take longer than the rest.
exclude_patterns = ["README.md", "docs/*-rows.md", ".*", "build", "tests", "streamrt"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
html_theme = "furo"
html_show_copyright = html_show_sphinx = html_copy_source = False

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

_LINK = re.compile(r"\[([^\]]+)\]\((https?://[^)]+)\)")
_CODE = re.compile(r"(?<![`\w])`((?:[^`\n]|\n(?!\n))+)`(?!`)")


def translate_markdown(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the Markdown of a docstring, which editors show, into the reStructuredText that Sphinx reads."""
    # Every second part is the code between two fences.
    parts = re.split(r"^( *)```(.*)\n((?:.*\n)*?) *```$", "\n".join(lines), flags=re.MULTILINE)
    made = [_LINK.sub(r"`\1 <\2>`_", _CODE.sub(r"``\1``", parts[0]))]
    for indent, language, code, text in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True):
        made += [f"{indent}.. code-block:: {language or 'text'}\n\n", re.sub("^(?=.)", "   ", code, flags=re.MULTILINE)]
        made.append(_LINK.sub(r"`\1 <\2>`_", _CODE.sub(r"``\1``", text)))
    lines[:] = "".join(made).split("\n")


def setup(app: Any) -> dict[str, bool]:
    """Translate docstrings before Google's sections are read; several processes may do so."""
    app.connect("autodoc-process-docstring", translate_markdown, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
