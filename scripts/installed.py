"""What `make install` has installed, so that `make uninstall` removes that and nothing else.

    scripts/installed.py add BUILD      notes the files and folders that Meson's last install made
    scripts/installed.py undo BUILD     removes them, where that install has failed
    scripts/installed.py remove BUILD [--destdir DIR] [--prefix DIR]   removes those noted that lie there

The list is BUILD/installed.txt, one path a line, folders with a slash at the end. A folder is noted if an
install made it, and removed when it is empty. Needs nothing but Python.
"""

import argparse
import json
import os
from pathlib import Path


def noted(build):
    path = build / "installed.txt"
    return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if path.exists() else []


def note(build, lines):
    path = build / "installed.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape")


def made_last(build):
    """What Meson's last install made."""
    log = build / "meson-logs" / "install-log.txt"
    lines = log.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    paths = [line for line in lines if line and not line.startswith("#")]
    return [path + "/" if os.path.isdir(path) and not os.path.islink(path) else path for path in paths]


def delete(paths):
    """Files first, then the folders that are empty, the innermost first."""
    for path in (path for path in paths if not path.endswith("/")):
        if os.path.lexists(path):
            os.unlink(path)
            print(f"removed {path}")
    for path in sorted((path for path in paths if path.endswith("/")), key=len, reverse=True):
        try:
            os.rmdir(path)
        except OSError:     # others have put something there, or it is gone
            pass


def add(build):
    note(build, dict.fromkeys(noted(build) + made_last(build)))


def undo(build):
    before = set(noted(build))
    delete([path for path in made_last(build) if path not in before])


def remove(build, destdir, prefix):
    folder = os.path.join(os.path.abspath(destdir + prefix), "")
    ours, others = [], []
    for line in noted(build):
        inside = os.path.join(line, "").startswith(folder)
        (ours if inside or line.endswith("/") and folder.startswith(line) else others).append(line)
    if not ours:
        print(f"nothing that {build} has installed lies in {folder}")
    delete(ours)
    note(build, others)


def prefix_of(build):
    options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
    return next(option["value"] for option in options if option["name"] == "prefix")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("add", "undo", "remove"))
    parser.add_argument("build", type=Path)
    parser.add_argument("--destdir", default="")
    parser.add_argument("--prefix")
    options = parser.parse_args()
    if options.verb == "add":
        add(options.build)
    elif options.verb == "undo":
        undo(options.build)
    else:
        remove(options.build, options.destdir, options.prefix or prefix_of(options.build))


if __name__ == "__main__":
    main()
