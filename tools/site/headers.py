"""The headers that are installed, as tools/cmake/install.cmake finds them: `headers.py FOLDER` fails if FOLDER, where
they are installed, has others.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def roots():
    """The headers that programs include."""
    text = (ROOT / "tools/cmake/install.cmake").read_text()
    return re.search(r"set\(headers\n(.*?)\)", text, re.S).group(1).split()


def included():
    """Returns the headers that these include, directly or not, sorted."""
    found = roots()
    for header in found:
        for other in re.findall(r'^#include "([^"]+)"', (ROOT / header).read_text(), re.M):
            if other not in found:
                found.append(other)
    return sorted(found[len(roots()) :])


def main():
    folder = pathlib.Path(sys.argv[1])
    installed = {str(path.relative_to(folder)) for path in folder.rglob("*.h")}
    expected = set(roots()) | set(included())
    for header in sorted(installed ^ expected):
        print(f"{header}: {'installed, but not in the reference' if header in installed else 'not installed'}")
    return 0 if installed == expected else 1


if __name__ == "__main__":
    sys.exit(main())
