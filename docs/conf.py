"""The settings of the documentation site, which `make docs` builds from the pages of the repository."""

project = "StreamRT"
html_title = project
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
# The tables of rows are test output, and the front page of the repository is not one of the site.
exclude_patterns = ["README.md", "docs/*-rows.md"]
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
html_theme = "furo"
html_show_copyright = html_show_sphinx = html_copy_source = False
