"""Hooks of MkDocs for our pages: links to files outside docs/ lead to copies of them, and the reference is generated
from the installed headers.
"""

import pathlib
import re
import sys

from mkdocs.structure.files import File

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import headers  # noqa: E402  # beside this file, which is no package

ROOT = pathlib.Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\((\.\./)+([^)#\s]+)(#[^)\s]*)?\)")


def reference(title, introduction, headers):
    """A page with the purpose of each header and its declarations."""
    lines = [f"# {title}", "", introduction]
    for header in headers:
        text = (ROOT / header).read_text()
        purpose = " ".join(
            line.lstrip("/ ").strip()
            for line in text[: text.index("#pragma once")].splitlines()
            if line.startswith("//")
        )
        body = text[text.index("#pragma once") + len("#pragma once") :]
        body = "\n".join(line for line in body.splitlines() if not line.startswith("#include"))
        lines += ["", f"## {header}", "", purpose, "", "```cpp", body.strip(), "```"]
    return "\n".join(lines) + "\n"


def on_files(files, config):
    for source, page in (
        ("README.md", "index.md"),
        ("CONTRIBUTING.md", "contributing.md"),
        ("CHANGELOG.md", "changelog.md"),
        ("SECURITY.md", "security.md"),
        ("THIRD_PARTY.md", "third-party.md"),
    ):
        content = (ROOT / source).read_text()
        content = re.sub(r"\]\(docs/", "](", content)
        for other, target in (
            ("CONTRIBUTING.md", "contributing.md"),
            ("CHANGELOG.md", "changelog.md"),
            ("THIRD_PARTY.md", "third-party.md"),
            ("SECURITY.md", "security.md"),
            ("README.md", "index.md"),
        ):
            content = content.replace(f"]({other}", f"]({target}")
        # The remaining links lead to files beside this page in the repository.
        content = re.sub(
            r"\]\((?!https?:|#|[\w-]+\.md|images/|gallery/)([^)#\s]+)(#[^)\s]*)?\)",
            lambda link: f"](source/{link.group(1)})",
            content,
        )
        files.append(File.generated(config, page, content=content))
        for link in re.findall(r"\]\(source/([^)#\s]+)\)", content):
            _add_source(files, config, link)

    for page, content in (
        (
            "reference.md",
            reference(
                "C++ reference",
                "The headers that programs include; each opens with its purpose and its limits. All names "
                "are in the namespace `headroom`. The types that they use are in [the headers that they "
                "include](reference-included.md).",
                headers.roots(),
            ),
        ),
        (
            "reference-included.md",
            reference(
                "C++ reference: included headers",
                "What [the headers that programs include](reference.md) include themselves: the types of "
                "their arguments and results. These are installed too.",
                headers.included(),
            ),
        ),
    ):
        files.append(File.generated(config, page, content=content))
    interface = (ROOT / "allocators/headroom_strategy.h").read_text()
    files.append(
        File.generated(
            config,
            "c-reference.md",
            content=f"# C reference\n\n[How to use it](library.md#c-interface)\n\n```c\n{interface}```\n",
        )
    )
    for page in list(files.documentation_pages()):
        if page.src_uri.startswith(("index", "reference", "c-reference")) or page.abs_src_path is None:
            continue
        for _, link, _ in _LINK.findall(pathlib.Path(page.abs_src_path).read_text()):
            _add_source(files, config, link)
    return files


def _add_source(files, config, link):
    path, target = ROOT / link, f"source/{link}"
    if path.is_file() and not link.endswith(".md") and files.get_file_from_path(target) is None:
        files.append(File.generated(config, target, content=path.read_bytes()))


def on_page_markdown(markdown, page, config, files):
    depth = page.file.src_uri.count("/")

    def moved(link):
        path, anchor = link.group(2), link.group(3) or ""
        if link.group(0).count("../") <= depth:
            return link.group(0)
        page_of = {
            "README.md": "index.md",
            "CONTRIBUTING.md": "contributing.md",
            "THIRD_PARTY.md": "third-party.md",
            "SECURITY.md": "security.md",
            "CHANGELOG.md": "changelog.md",
        }.get(path, f"source/{path}")
        return f"]({'../' * depth}{page_of}{anchor})"

    return _LINK.sub(moved, markdown)
