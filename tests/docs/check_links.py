#!/usr/bin/env python3
"""Checks the links of README.md, the other pages at the top, and all pages below docs/: each file is there, and each
heading that a link names. Links to other sites are left alone.

usage: check_links.py ROOT
"""

import functools
import pathlib
import re
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page):
    """The page without its blocks of code, where brackets are no links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return "\n".join(line for line in text.split("\n") if not line.startswith("    "))


@functools.lru_cache
def anchors(page):
    """The names of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text_of(page), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        while name in found:
            name += "-1"
        found.add(name)
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    pages = sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])
    links, wrong = 0, []
    for page in pages:
        text = re.sub(r"`[^`\n]*`", "", text_of(page))
        for link in LINK.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            links += 1
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                wrong.append(f"{page.relative_to(root)}: {link}: no such file")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                wrong.append(f"{page.relative_to(root)}: {link}: no such heading")
    for line in wrong:
        print(line)
    print(f"{links} links of {len(pages)} pages, {len(wrong)} wrong")
    return 1 if wrong or links < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
