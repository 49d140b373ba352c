#!/usr/bin/env python3
"""Runs commands in a terminal and draws what they print as an SVG: a picture, or an animation of them.

usage: cast.py [--still] [--columns N] [--rows N] [--path FOLDERS] OUTPUT.svg COMMAND...

Needs no browser and no font of its own. --still draws the last screen alone. Colors are those that the
commands print; lines beyond the rows scroll.
"""

import argparse
import fcntl
import html
import os
import pty
import re
import select
import struct
import subprocess
import termios

FOREGROUND, BACKGROUND = "#d8dee9", "#1e222a"
COLORS = {
    31: "#e06c75",
    32: "#98c379",
    33: "#e5c07b",
    34: "#61afef",
    35: "#c678dd",
    36: "#56b6c2",
    90: "#7f848e",
}
CHARACTER_WIDTH, LINE_HEIGHT, FONT_SIZE = 8.0, 18, 13.3


def run(command, columns, environment):
    """Returns the output of the command on a terminal of that width."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env=environment,
    )
    os.close(follower)
    output = b""
    while True:
        ready, _, _ = select.select([leader], [], [], 0.1)
        if ready:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            output += piece
        elif process.poll() is not None:
            break
    process.wait()
    os.close(leader)
    return output.decode(errors="replace").replace("\r\n", "\n")


def lines_of(text, columns):
    """Lines as lists of (text, color, bold); a carriage return begins the line again."""
    lines = []
    for raw in text.split("\n"):
        raw = raw.split("\r")[-1]
        pieces, color, bold, used = [], FOREGROUND, False, 0
        for part in re.split(r"(\x1b\[[0-9;]*[A-Za-z])", raw):
            if part.startswith("\x1b["):
                if part.endswith("m"):
                    for code in (int(code or 0) for code in part[2:-1].split(";")):
                        if code == 0:
                            color, bold = FOREGROUND, False
                        elif code == 1:
                            bold = True
                        elif code == 2:
                            color = COLORS[90]
                        elif code in COLORS:
                            color = COLORS[code]
                continue
            while part:  # as terminals wrap
                if used == columns:
                    lines.append(pieces)
                    pieces, used = [], 0
                piece, part = part[: columns - used], part[columns - used :]
                used += len(piece)
                pieces.append((piece, color, bold))
        lines.append(pieces)
    return lines


def drawn(pieces, row):
    """One line of the screen as SVG."""
    spans, column = [], 0
    for text, color, bold in pieces:
        blanks = len(text) - len(text.lstrip())  # which browsers leave out
        column, text = column + blanks, text[blanks:]
        if text:
            weight = ' font-weight="bold"' if bold else ""
            spans.append(
                f'<tspan x="{12 + column * CHARACTER_WIDTH:.1f}" fill="{color}"{weight} '
                f'textLength="{len(text) * CHARACTER_WIDTH:.1f}">{html.escape(text)}</tspan>'
            )
        column += len(text)
    return f'<text y="{30 + row * LINE_HEIGHT}">{"".join(spans)}</text>' if spans else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--path", default="")
    parser.add_argument("output")
    parser.add_argument("commands", nargs="+")
    arguments = parser.parse_args()
    environment = dict(os.environ, TERM="xterm-256color", HEADROOM_COLOR="always")
    environment["PATH"] = f"{arguments.path}:{environment['PATH']}"

    frames, screen = [], []

    def keep(seconds):
        frames.append((list(screen[-arguments.rows :]), seconds))

    for command in arguments.commands:
        prompt = [("$ ", COLORS[32], True), (command, FOREGROUND, True)]
        screen.append(prompt)
        keep(0.8)
        screen.extend(lines_of(run(command, arguments.columns, environment).rstrip("\n"), arguments.columns))
        screen.append([])
        keep(4.0)
    if arguments.still:
        frames = frames[-1:]

    rows = max(len(lines) for lines, _ in frames)
    width = 24 + arguments.columns * CHARACTER_WIDTH
    height = 24 + rows * LINE_HEIGHT
    total = sum(seconds for _, seconds in frames)
    style, groups, at = [], [], 0.0
    for index, (lines, seconds) in enumerate(frames):
        body = "".join(drawn(pieces, row) for row, pieces in enumerate(lines))
        if len(frames) > 1:
            begin, end = 100 * at / total, 100 * (at + seconds) / total
            style.append(
                f"@keyframes f{index} {{ 0%, {max(0, begin - 0.001):.3f}% {{ visibility: hidden }} "
                f"{begin:.3f}%, {end - 0.002:.3f}% {{ visibility: visible }} "
                f"{end:.3f}%, 100% {{ visibility: {'visible' if end > 99.99 else 'hidden'} }} }}\n"
                f".f{index} {{ visibility: hidden; animation: f{index} {total:.1f}s step-end infinite }}"
            )
        groups.append(f'<g class="f{index}">{body}</g>')
        at += seconds
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}" font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" '
            f'font-size="{FONT_SIZE}" xml:space="preserve"><style>{chr(10).join(style)}</style>'
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>{"".join(groups)}</svg>\n'
        )


if __name__ == "__main__":
    main()
