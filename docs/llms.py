"""The files `llms.txt`, which lists the pages, and `llms-full.txt`, which contains them: see https://llmstxt.org."""

import importlib
import inspect
import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

from docutils import nodes
from sphinx import addnodes

_LINK = re.compile(r"\]\(([^()#\s]*)(?:#([^()\s]*))?\)")
_NAMES = re.compile(r"```{eval-rst}\n\.\. currentmodule:: (\S+)\n(.*?)```", re.DOTALL)
_NAME = re.compile(r"^\.\. (?:auto\w+|py:data):: (\w+)\n(?:\n +(.+)\n)?", re.MULTILINE)
_DOORS = re.compile(r"```{toctree}\n.*?```\n*", re.DOTALL)
_DOCUMENTED = (FunctionType, classmethod, staticmethod, property, cached_property)


def summarize_page(app: Any, doctree: Any) -> None:
    """Keep the first paragraph of a page; that of a decision comes after its status."""
    paragraphs = (" ".join(node.astext().split()) for node in doctree.findall(nodes.paragraph))
    app.env.metadata[app.env.docname]["summary"] = next(one for one in paragraphs if not one.startswith("Status:"))


def write_files(app: Any, error: Exception | None) -> None:
    """Write both files next to the pages, in the order of the doors."""
    if error or app.builder.format != "html":
        return
    root = app.config.root_doc
    short = [f"# {app.config.project}", f"> {app.env.metadata[root]['summary']}"]
    pages = [root]
    for door in app.env.get_doctree(root).findall(addnodes.toctree):
        short += [f"## {door.get('caption') or 'Optional'}"]
        short += ["\n".join(_list_page(app, page) for _, page in door["entries"])]
        pages += [page for _, page in door["entries"]]
    for name, parts in (("llms.txt", short), ("llms-full.txt", [_read_page(app, page) for page in pages])):
        Path(app.outdir, name).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _list_page(app: Any, page: str) -> str:
    title = app.env.titles[page].astext()
    return f"- [{title}]({app.builder.get_target_uri(page)}): {app.env.metadata[page]['summary']}"


def _read_page(app: Any, page: str) -> str:
    """Return a page whose links begin at the root of the site, with docstrings in place of directives."""

    def replace_link(link: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1])) if link[1] else f"{page}.md"
        target = file.removesuffix(".md")
        if target in app.env.found_docs:
            _, anchor, _ = app.env.metadata[target]["myst_slugs"].get(link[2], (0, link[2], ""))
            return f"]({app.builder.get_target_uri(target)}{'#' if anchor else ''}{anchor or ''})"
        for folder, files in (("_images", app.env.images), ("_downloads", app.env.dlfiles)):
            if found := files.get(file) or files.get(Path(file)):
                return f"]({folder}/{found[1]})"
        return link[0]

    text = _DOORS.sub("", app.env.doc2path(page).read_text(encoding="utf-8"))
    text = _NAMES.sub(lambda block: "\n\n".join(_describe_names(block[1], block[2])), text)
    return f"<!-- {app.builder.get_target_uri(page)} -->\n\n{_LINK.sub(replace_link, text).strip()}"


def _describe_names(module: str, directives: str) -> Iterator[str]:
    for name, text in _NAME.findall(directives):
        thing = getattr(importlib.import_module(module), name)
        yield f"## {module}.{name}\n\n{text or _describe(name, thing)}"
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and isinstance(value, _DOCUMENTED):
                    yield f"### {name}.{member}\n\n{_describe(member, getattr(thing, member))}"


def _describe(name: str, thing: Any) -> str:
    try:
        signature = f"```text\n{name}{inspect.signature(thing)}\n```\n\n" if callable(thing) else ""
    except ValueError:
        signature = ""
    return f"{signature}{inspect.getdoc(thing) or ''}".strip()


def setup(app: Any) -> dict[str, bool]:
    """Write the files after the pages; several processes may read these."""
    # The metadata of a page are made by listeners of the usual priority.
    app.connect("doctree-read", summarize_page, priority=600)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
