"""Hooks of mkdocs: generated parts, pages from the root of the repository, links out of docs/, equations."""

import html
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parent))
import reference

ROOT = Path(__file__).resolve().parent.parent
# Files of the repository's root that are pages of the site too. index.md takes the place of README.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
INSTEAD = {**PAGES, "README.md": "index.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# A list that follows a paragraph at once: GitHub shows it as a list, Python-Markdown wants an empty line.
BEFORE_LIST = re.compile(r"^(?![-*|#>\s\d<]).+\n(?=- )", re.MULTILINE)
MATH = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    for source, page in PAGES.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    where = page.file.src_uri
    from_root = where in PAGES.values()
    folder = PurePosixPath("." if from_root else "docs") / PurePosixPath("" if from_root else where).parent
    parts = FENCED.split(reference.fill(markdown))
    # mkdocstrings would take "[FOLDER] [key=value]" for a link.
    parts[::2] = [
        BEFORE_LIST.sub(r"\g<0>\n", LINK.sub(lambda link: relink(link, folder, where), part).replace("] [", "] \\["))
        for part in parts[::2]
    ]
    return "".join(parts)


def relink(link: re.Match[str], folder: PurePosixPath, where: str) -> str:
    """Turn a link out of docs/ into a link to a page of the site. Without such a page, name the file."""
    image, text, target = link.groups()
    path, hash_mark, anchor = target.partition("#")
    if "://" in target or target.startswith(("#", "mailto:")):
        return link[0]
    up = "../" * (len(PurePosixPath(where).parts) - 1)
    full = f"docs/{path.removeprefix('docs:')}" if path.startswith("docs:") else normal(folder / path)
    if full.startswith("docs/"):
        return f"{image}[{text}]({up}{full.removeprefix('docs/')}{hash_mark}{anchor})"
    if full in INSTEAD:
        return f"[{text}]({up}{INSTEAD[full]}{hash_mark if full in PAGES else ''}{anchor if full in PAGES else ''})"
    if not (ROOT / full).exists():
        raise PluginError(f"{where}: links to {target}, which does not exist")
    return text if text.strip("`") in (full, path) else f"{text} (`{full}`)"


def normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part not in ("..", "."):
            parts.append(part)
    return "/".join(parts)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Turn equations into MathML, so that a page needs no script and no network."""
    return MATH.sub(lambda found: equation(found[1] == "div", html.unescape(found[2]), page.file.src_uri), content)


def equation(alone: bool, latex: str, where: str) -> str:
    text = re.sub(r"^\s*\\[(\[]|\\[)\]]\s*$", "", latex).strip()
    made = convert(text, display="block" if alone else "inline")
    unknown = re.findall(r"<m[a-z]+[^>]*>(\\\w+)<", made)
    if unknown:
        raise PluginError(f"{where}: no MathML for {', '.join(unknown)} in {text}")
    return f'<div class="equation">{made}</div>' if alone else made
