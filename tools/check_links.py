"""Check every link of a built site, without the network.

python tools/check_links.py docs/_build/html

Links within the site must lead to a file that is there, and to an anchor in it. Links elsewhere are
looked at for their form only: https or http with a host, or mailto.
"""

import argparse
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

#: Where an element names another resource.
ATTRIBUTES = {"a": "href", "img": "src", "link": "href", "script": "src", "source": "src"}
LISTS = {"img": "srcset", "source": "srcset"}


class Page(NamedTuple):
    """What a page has: anchors, and links with the line they stand in."""

    anchors: set[str]
    links: list[tuple[int, str]]


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.page = Page(set(), [])

    def handle_starttag(self, tag, attrs):
        given = {name: value for name, value in attrs if value is not None}
        line = self.getpos()[0]
        self.page.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag in ATTRIBUTES and ATTRIBUTES[tag] in given:
            self.page.links.append((line, given[ATTRIBUTES[tag]].strip()))
        if tag in LISTS and LISTS[tag] in given:
            for part in given[LISTS[tag]].split(","):
                self.page.links.append((line, part.split()[0]))

    handle_startendtag = handle_starttag


def read(path):
    """Return the anchors and links of a page."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def problem_elsewhere(link):
    """Return what is wrong with the form of a link to another site, None if nothing is."""
    parts = urlsplit(link)
    if parts.scheme == "mailto":
        return None if "@" in parts.path else "has no address"
    if parts.scheme not in ("http", "https"):
        return f"must be https, http or mailto, got {parts.scheme!r}"
    host = parts.hostname or ""
    if "." not in host or host.startswith("127."):
        return f"must name a host, got {host!r}"
    return "must have no blanks" if any(mark.isspace() for mark in link) else None


def check(root):
    """Return what is wrong with the links below a folder, a sentence each.

    Parameters
    ----------
    root : pathlib.Path

    Returns
    -------
    problems : list of str
    n_links : int
    """
    root = root.resolve()
    # what lies in a folder such as _static belongs to the theme, and is no page
    files = (p for p in sorted(root.rglob("*.html")) if p.relative_to(root).parts[0][0] != "_")
    pages = {path: read(path) for path in files}
    problems, n_links = [], 0
    for path, page in pages.items():
        for line, link in page.links:
            n_links += 1
            problem = _problem(root, pages, path, link)
            if problem is not None:
                problems.append(f"{path.relative_to(root)}:{line}: {link!r} {problem}")
    return problems, n_links


def _problem(root, pages, path, link):
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return problem_elsewhere(f"https:{link}" if not parts.scheme else link)
    if parts.path.startswith("/"):
        return "must be relative: the site may lie in a folder"
    target = path
    if parts.path:
        target = (path.parent / unquote(parts.path)).resolve()
        if not target.is_relative_to(root):
            return "leads out of the site"
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file():
            return "leads to no file"
    anchor = unquote(parts.fragment)
    # an empty one is the top of the page; what is no page has parts that only its reader knows
    if anchor and target in pages and anchor not in pages[target].anchors:
        return f"leads to no anchor of {target.relative_to(root)}"
    return None


def main(argv=None):
    """Check a site and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, metavar="FOLDER", help="where the site was built")
    root = parser.parse_args(argv).root
    if not (root / "index.html").is_file():
        print(
            f"error: {root} must hold a built site, got no index.html; make docs", file=sys.stderr
        )
        return 2
    problems, n_links = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{n_links} links, {len(problems)} of them wrong.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
