"""The moving picture of README.md, docs/pictures/terminal.svg: python bench/terminal.py

Runs the commands of README's first shell block (a simulated, messy log, a verdict, choices within a budget), then `l2d serve`, and
asks the server what its page asks. All text is what the commands printed; lines left out are marked with “…”, and the page is
redrawn from the server's answer. Two minutes on two cores.
"""

import html
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
from pathlib import Path
from typing import Any

from pictures import BLUE, GREEN, ORANGE
from records import ROOT
from serve import server

PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS, LINES, STEP, FONT = 104, 25, 17, 12  # of the terminal; the height of a line and of a letter
WIDTH, HEIGHT = 790, STEP * LINES + 50
QUERY = "python function with an error in a loop"
SHOWN = r"log.csv: left|candidate |-|clusters|knn|mix |linear|network|every row|router |best single|verdict"  # of long outputs
ASIDE = "\x00"  # a line that no command printed
STYLE = (
    "text{{font:{}px monospace}}.c{{fill:#8fd18f;font-weight:bold}}.o{{fill:#d8dee9}}.a{{fill:#7d8797}}"
    ".v{{fill:#ffd479;font-weight:bold}}.w{{font-family:sans-serif;fill:#1b1f27}}g{{animation:{:.1f}s step-end infinite}}"
)


def commands() -> list[str]:
    """README's first shell block."""
    block = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[0]
    return [line for line in re.split(r"(?<!\\)\n", block.strip()) if not line.startswith(".")]


def record(command: str, folder: Path) -> list[str]:
    """The command as it is typed, what it prints, and how long it took."""
    settings = {"PYTHONUNBUFFERED": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    there, begun = command.replace("examples/", f"{ROOT}/examples/"), time.monotonic()
    told: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(there, shell=True, cwd=folder, env=os.environ | settings, check=True, **told)
    print(f"$ {command}\n{done.stdout}", flush=True)
    return [*f"$ {command}".splitlines(), *shown(done.stdout.splitlines()), f"{ASIDE}{time.monotonic() - begun:.0f} s"]


def shown(lines: list[str]) -> list[str]:
    """The lines of a short output, and those of a long one that matter, folded to the terminal's width."""
    found: list[str] = []
    for line in lines:
        if len(lines) < 20 or re.match(SHOWN, line):
            found += textwrap.wrap(line, COLUMNS, subsequent_indent="    ", drop_whitespace=False) or [""]
        elif found and found[-1] != f"{ASIDE}…":
            found.append(f"{ASIDE}…")
    return found


def row(line: str, y: float) -> str:
    """A line of the terminal. textLength keeps the columns in place whatever the font."""
    text = line.removeprefix(ASIDE)
    kind = {"$": "c", ASIDE: "a", "verdict": "v"}.get(line.split(":")[0] if "verdict" in line else line[:1], "o")
    place = f'x="18" y="{y}" textLength="{0.6 * FONT * len(text):.0f}"'
    return f'<text class="{kind}" {place} xml:space="preserve">{html.escape(text)}</text>'


def page(answer: dict[str, Any]) -> str:
    """The page's card for one query, from the answer of POST /v1/preview."""
    ranking, most = answer["ranking"], max(one["expected_cost"] for one in answer["ranking"])
    said = [(60, 13, f"localhost:8080 · {answer['run']}"), (94, 14, f"Query: {QUERY}"), (130, 13, "The router chooses")]
    said += [(158, 20, ranking[0]["expert"]), (184, 12, "expected error + price, in units of one error")]
    boxes = [(8, 34, WIDTH - 16, HEIGHT - 42, "#f4f5f7")]
    for y, one, colour in zip((224, 284, 344), ranking, (ORANGE, BLUE, GREEN), strict=True):
        error, cost, price = one["expected_error"], one["expected_cost"], one["price"]
        said.append((y, 14, f"{one['expert']}: cost {cost:.3f}, error {error:.3f}, price ${price:.5f}"))
        boxes += [(36, y + 9, 600 * cost / most, 12, f"{colour}70"), (36, y + 9, 600 * error / most, 12, colour)]
    drawn = [f'<rect x="{x}" y="{y}" width="{w:.0f}" height="{h}" fill="{fill}"/>' for x, y, w, h, fill in boxes]
    texts = [f'<text class="w" x="36" y="{y}" style="font-size:{size}px">{text}</text>' for y, size, text in said]
    return "".join(drawn + texts)


def animate(scenes: list[list[str]]) -> str:
    """One scene after the other, each line a little after the one above, again and again. The longest is seen if nothing moves."""
    ends = [sum(3 + 0.3 * len(scene) for scene in scenes[: number + 1]) for number in range(len(scenes))]
    styles, groups, still = [STYLE.format(FONT, ends[-1])], [], max(scenes, key=len)
    for number, (start, end, scene) in enumerate(zip([0, *ends], ends, scenes, strict=False)):
        for place, drawn in enumerate(scene):
            begun, name = start + (0.7 + 0.08 * place if place else 0), f"s{number}_{place}"
            shares = f"{100 * begun / ends[-1]:.2f}%{{opacity:1}}{100 * end / ends[-1]:.2f}%{{opacity:0}}"
            styles.append(f"@keyframes {name}{{0%{{opacity:0}}{shares}}}")
            groups.append(f'<g opacity="{int(scene is still)}" style="animation-name:{name}">{drawn}</g>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
    back = '<rect width="100%" height="100%" rx="8" fill="#1b1f27"/>'
    return f"{head}<style>{''.join(styles)}</style>{back}{''.join(groups)}</svg>\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        make, *others = commands()
        scenes = [record(command, Path(place)) for command in (f"{make} && head -4 log.csv", *others)]
        [run] = (path.relative_to(place) for path in Path(place).glob("runs/*/*/*/*/*/*/seed=0"))
        with server(run, Path(place)) as (port, _):
            body, kind = json.dumps({"text": QUERY}).encode(), {"content-type": "application/json"}
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/preview", body, kind)
            answer = json.load(urllib.request.urlopen(asked))
    scenes.append([f"$ l2d serve {run}"])
    drawn = [[row(line, 30 + STEP * y) for y, line in enumerate(scene)] for scene in scenes]
    drawn[-1].append(page(answer))
    PICTURE.write_text(animate(drawn), encoding="utf-8")
