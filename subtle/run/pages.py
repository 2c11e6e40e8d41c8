"""Fill in a page of `templates/`: escaped, in one file, without access to the network."""

import base64
import hashlib
from typing import Any

import jinja2

from subtle.commands import SUBTLE

TEMPLATES = SUBTLE / "run" / "templates"


def csp_hash(text: str) -> str:
    """The source expression that lets a Content-Security-Policy accept exactly this inline script or style."""
    digest = hashlib.sha256(str(text).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def render_page(template: str, **values: Any) -> str:
    """The page; text in `values` is escaped, and a value that the template lacks is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["csp_hash"] = csp_hash
    return environment.get_template(template).render(**values)
