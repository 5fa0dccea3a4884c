"""The files of the dashboard: one page, which asks the other routes for everything that it shows.

The files are the same for every application, and are served to everyone who reaches the server. They fetch nothing from
elsewhere, and the browser is told to allow nothing else: no inline script, no frame, no text that becomes HTML.
"""

from functools import partial
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["PAGE_PATHS", "page_routes"]

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    **dict.fromkeys(
        ("main.js", "api.js", "chart.js", "dom.js", "graph.js", "layout.js", "lookup.js", "tables.js", "views.js"),
        "text/javascript; charset=utf-8",
    ),
}
_PATHS = {"/" if name == "index.html" else f"/page/{name}": name for name in _TYPES}
PAGE_PATHS = frozenset(_PATHS)
"""The paths of the files."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def page_routes() -> list[Route]:
    """Return the routes of the page and its files."""
    return [Route(path, partial(_serve_file, name), methods=["GET"]) for path, name in _PATHS.items()]


async def _serve_file(name: str, request: Request) -> Response:
    body = files("streamrt.control").joinpath("page").joinpath(name).read_bytes()
    return Response(body, 200, _HEADERS, _TYPES[name])
