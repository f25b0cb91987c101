"""Reads a rendered report without a browser: elements, tables and embedded figures."""

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """``elements``: (tag, attributes) in order; ``tables``: rows of texts; ``figures``: JSON by id."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.rows: dict[str, list[str]] = {}
        self.figures: dict[str, Any] = {}
        self.headings: list[str] = []
        self.text = ""
        self._table: str | None = None
        self._cell = False
        self._into: list[str] | None = None
        self._script: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "table":
            self._table = attributes.get("id") or f"table-{len(self.tables)}"
            self.tables[self._table] = []
            self.rows[self._table] = []
        elif tag == "tr" and self._table:
            self.tables[self._table].append([])
            self.rows[self._table].append(attributes.get("class") or "")
        elif tag in ("td", "th") and self._table:
            self.tables[self._table][-1].append("")
            self._cell = True
        elif tag in ("h1", "h2"):
            self.headings.append("")
            self._into = self.headings
        elif tag == "script":
            self._script = attributes.get("id") or "code"
            self.figures[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._table:
            self.tables[self._table][-1][-1] = " ".join(self.tables[self._table][-1][-1].split())
            self._cell = False
        elif tag == "table":
            self._table = None
        elif tag in ("h1", "h2"):
            self._into = None
        elif tag == "script" and self._script:
            if self._script != "code":
                self.figures[self._script] = json.loads(self.figures[self._script])
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script:
            self.figures[self._script] += data
            return
        self.text += data
        if self._into is not None:
            self._into[-1] += data
        elif self._table and self._cell:
            self.tables[self._table][-1][-1] += data

    def count(self, tag: str, **attributes: str) -> int:
        """How many elements of ``tag`` have all ``attributes``."""
        return sum(t == tag and all(a.get(k) == v for k, v in attributes.items()) for t, a in self.elements)
