"""The tables of docs/RESULTS.md come from docs/results/*.json; this keeps both together.

    python benchmarks/results.py                  measure what can be measured here and is not yet, one table
                                                  after the other; an interrupted run goes on where it was
    python benchmarks/results.py --again NAME     measure one again
    python benchmarks/results.py --list           what there is, of which day, and how it came about
    python benchmarks/results.py --page           only write the tables of the page, from the JSON
    python benchmarks/results.py --adopt          store the tables that were written or changed on the page:
                                                  transcripts of recorded runs, marked as such

A file holds the tables of one section, the command, date, processor and versions. On the page, a comment
`<!-- results: NAME N -->` stands before each table. `make results` is the first line;
tests/benchmarks/test_results.py fails if page and JSON disagree.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, FOLDER = ROOT / "docs" / "RESULTS.md", ROOT / "docs" / "results"
PACKAGES = ("torch", "numpy", "lava-nc", "lava-dl", "snntorch", "spikingjelly", "norse", "nengo-loihi")
# Commands that need no data set, no checkpoint and no clone of others, and end within minutes.
CHEAP = ("benchmarks/fit_speed.py", "benchmarks/nir_readers.py", "benchmarks/digits.py --seeds 3",
         "benchmarks/energy_check.py", "benchmarks/digit_rows.py --seeds 3")  # fmt: skip
TABLE = re.compile(r"^(\|.*\|)[ ]*\n\|[-:| ]+\|[ ]*\n((?:\|.*\|[ ]*(?:\n|\Z))*)", re.MULTILINE)
MARK = re.compile(r"<!-- results: ([\w-]+) (\d+) -->\n\n?$")
ANY_MARK = re.compile(r"<!-- results: [\w-]+ \d+ -->\n\n?")
COMMAND = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


# ---- Markdown -------------------------------------------------------------------------------------


def tables(text):
    """Return the tables of a Markdown text, as {"columns": [...], "rows": [[...], ...]}."""
    found = []
    for match in TABLE.finditer(text):
        head, *rows = [_cells(line) for line in (match[1], *match[2].splitlines())]
        found.append({"columns": head, "rows": rows})
    return found


def _cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def markdown(table):
    head, *rows = ["| " + " | ".join(line) + " |\n" for line in (table["columns"], *table["rows"])]
    return "".join([head, "|" + "---|" * len(table["columns"]) + "\n", *rows])


def slug(heading):
    """Return the name of a section: "Digits: float against integer" -> "digits-float-against-integer"."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def sections(page):
    """Return the page's parts, cut before each heading of a section, the head of the page first."""
    return re.split(r"^(?=## )", page, flags=re.MULTILINE)


# ---- the files ------------------------------------------------------------------------------------


def stored():
    """Return what docs/results holds, by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}


def store(name, content):
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def machine():
    """Return date, processor and versions of a measurement here."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"date": date.today().isoformat(), "processor": _processor(), "versions": versions}


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


# ---- the page -------------------------------------------------------------------------------------


def written(page, results):
    """Return the page with the tables that the JSON holds after each mark."""

    def replaced(match):
        mark = MARK.search(page, 0, match.start())
        if mark is None:
            return match[0]
        name, place = mark[1], int(mark[2])
        return markdown(results[name]["tables"][place])

    return TABLE.sub(replaced, page)


def adopted(page, results):
    """Return the page with a mark before each table, and the results with the tables as the page has them."""
    head, parts, found = sections(page)[0], [], {}
    for part in sections(page):
        name = slug(part.partition("\n")[0])
        plain = ANY_MARK.sub("", part)
        if shown := tables(plain):
            before = results.get(name)
            same = before is not None and before["tables"] == shown
            found[name] = before if same else {**_transcript(plain, head), "tables": shown}
        numbers = count()

        def marked(match, name=name, numbers=numbers):
            return f"<!-- results: {name} {next(numbers)} -->\n\n{match[0]}"

        parts.append(TABLE.sub(marked, plain))
    return "".join(parts), found


def _transcript(part, head):
    """Describe a recorded run: its command, its day and processor, or else those of the page's head."""
    command = COMMAND.search(part)
    days = re.findall(r"20\d\d-\d\d-\d\d", part) or re.findall(r"20\d\d-\d\d-\d\d", head)
    return {
        "heading": part.partition("\n")[0].removeprefix("## "),
        "command": command[1].strip() if command else None,
        "how": "transcribed from a recorded run",
        "date": max(days),
        "processor": "AMD EPYC, x86-64" if "EPYC" in part else "Intel Xeon, x86-64",
        "versions": {"torch": "2.13.0", "lava-nc": "0.10.0"},
    }


# ---- measuring ------------------------------------------------------------------------------------


def measurable(entry):
    """Return the words of the command, if it can run here as it is; else None."""
    lines = (entry["command"] or "").splitlines()
    words = lines[0].partition("#")[0].split() if len(lines) == 1 else []
    return words[1:] if words[:1] == ["python"] and " ".join(words[1:]) in CHEAP else None


def measure(name, entry):
    """Run the command of a section and store its tables."""
    words = measurable(entry)
    print(f"{name}: python {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = tables(done.stdout)
    if [table["columns"] for table in found] != [table["columns"] for table in entry["tables"]]:
        sys.exit(f"{name}: the command prints other tables than the page has; adapt the page, then --adopt")
    store(name, {**entry, **machine(), "how": "measured", "tables": found})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="append", default=[], metavar="NAME")
    for option in ("--list", "--page", "--adopt"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    results, page = stored(), PAGE.read_text(encoding="utf-8")
    if options.list:
        for name, entry in results.items():
            print(f"{name}: {entry['how']}, {entry['date']}, {entry['processor']}")
        return
    if options.adopt:
        page, kept = adopted(page, results)
        for name in results.keys() - kept.keys():
            (FOLDER / f"{name}.json").unlink()
        for name, entry in kept.items():
            store(name, entry)
    elif not options.page:
        for name, entry in results.items():
            new = not options.again and entry["how"] != "measured"
            if measurable(entry) and (new or name in options.again):
                measure(name, entry)
    PAGE.write_text(written(page, stored()), encoding="utf-8")


if __name__ == "__main__":
    main()
