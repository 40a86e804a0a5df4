"""The tables of the pages docs/results/*.md come from docs/results/*.json; this keeps both together.

    python benchmarks/results.py                  measure what takes minutes, needs nothing but this machine
                                                  and is not measured yet; an interrupted run goes on
    python benchmarks/results.py --again NAME     measure one section again, whatever it takes
    python benchmarks/results.py --again NAME --place FOLDER=../MPBN
                                                  ... whose command names something that you have
    python benchmarks/results.py --list           what there is, of which day, and how it came about
    python benchmarks/results.py --page           only write the tables of the pages, from the JSON
    python benchmarks/results.py --adopt          store the tables that were written or changed on the pages:
                                                  transcripts of recorded runs, marked as such

A file of JSON holds the tables of one section, the command, date, processor and versions. On a page, a
comment `<!-- results: NAME N -->` stands before each table, and `<!-- source: NAME -->` before the line that
says when and where it was measured; a new page takes part once it has the line `<!-- results -->`. A section
whose commands are tests says in words what they check: it is measured if all pass and none is skipped. `make
results` is the first line; tests/benchmarks/test_results.py fails if pages and JSON disagree.
"""

import argparse
import itertools
import json
import os
import platform
import re
import resource
import shlex
import subprocess
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "results"
PACKAGES = ("torch", "numpy", "lava-nc", "lava-dl", "snntorch", "spikingjelly", "norse", "nirtorch",
            "nengo-loihi")  # fmt: skip
SHOWN = {"python": "Python", "torch": "torch", "numpy": "NumPy", "lava-nc": "Lava"}  # on the page
# Commands that need no data set, no checkpoint and no clone of others, and end within about five minutes.
CHEAP = (
    "benchmarks/chip_cut.py", "benchmarks/cost_growth.py --figure docs/cost_growth.png", "benchmarks/demo.py",
    "benchmarks/digit_rows.py --seeds 3", "benchmarks/digits.py --seeds 3", "benchmarks/energy_check.py",
    "benchmarks/energy_check.py --zoo resnet34 --samples 8", "benchmarks/export_speed.py",
    "benchmarks/fit_speed.py", "benchmarks/fold_zoo.py --samples 1", "benchmarks/lava_speed.py",
    "benchmarks/neighbors.py", "benchmarks/neuron_speed.py", "benchmarks/nir_readers.py",
    "benchmarks/no_burden.py", "benchmarks/quantization.py --time --bits 8 4", "benchmarks/relays.py",
    "benchmarks/sigma_delta.py", "benchmarks/thresholds.py",
    "-m pytest tests/formats/test_netx.py tests/formats/test_netx_wrong.py",
    "-m pytest tests/hardware/test_place.py tests/hardware/test_place_nengo.py",
)  # fmt: skip
MEASURED, TRANSCRIBED, QUOTED = "measured", "transcribed from a recorded run", "quoted from "
TABLE = re.compile(r"^(\|.*\|)[ ]*\n\|[-:| ]+\|[ ]*\n((?:\|.*\|[ ]*(?:\n|\Z))*)", re.MULTILINE)
MARK = re.compile(r"<!-- results: ([\w-]+) (\d+) -->\n\n?$")
ANY_MARK = re.compile(r"<!-- results(?:: [\w-]+ \d+)? -->\n\n?")
SOURCE = re.compile(r"<!-- source: ([\w-]+) -->\n\n.*\n\n")
COMMAND = re.compile(r"^```sh\n(.*?)^```\n+", re.MULTILINE | re.DOTALL)


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
    """Return the page's parts, cut before each heading of a section; the first begins with the title."""
    return re.split(r"^(?=##+ )", page, flags=re.MULTILINE)


# ---- the files ------------------------------------------------------------------------------------


def stored():
    """Return what docs/results holds, by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}


def pages():
    """Return the pages that hold results, by name."""
    found = {file.stem: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.md"))}
    return {name: text for name, text in found.items() if "<!-- results" in text or "<!-- source" in text}


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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, platform.processor() or platform.machine())
    return f"{name}, {cores} core{'s' if cores != 1 else ''}"


# ---- the page -------------------------------------------------------------------------------------


def source(entry):
    """Return the sentence that says when and where a section was measured, or who published it."""
    if entry["how"].startswith(QUOTED):
        return f"*{entry['how'][0].upper()}{entry['how'][1:]}, {entry['date']}; not measured here.*"
    how = "Measured" if entry["how"] == MEASURED else "Transcribed from a run"
    found = {name: entry["versions"][name] for name in SHOWN if name in entry["versions"]}
    versions = ", ".join(f"{SHOWN[name]} {number.partition('+')[0]}" for name, number in found.items())
    seconds = (
        f" Took {entry['processor_seconds']:,} processor seconds." if "processor_seconds" in entry else ""
    )
    return f"*{how} on {entry['date']}: {entry['processor']}; {versions}.{seconds}*"


def written(page, results):
    """Return the page with the tables that the JSON holds after each mark, and where they come from."""

    def replaced(match):
        mark = MARK.search(page, 0, match.start())
        if mark is None:
            return match[0]
        name, place = mark[1], int(mark[2])
        return markdown(results[name]["tables"][place])

    page = TABLE.sub(replaced, page)
    return SOURCE.sub(lambda match: _sourced(match[1], results[match[1]]), page)


def _sourced(name, entry):
    return f"<!-- source: {name} -->\n\n{source(entry)}\n\n"


def adopted(page, results):
    """Return the page with a mark before each table, and the results with the tables as the page has them."""
    parts, found = [], {}
    for part in sections(page):
        name = slug(part.partition("\n")[0])
        plain = SOURCE.sub("", ANY_MARK.sub("", part))
        if shown := tables(plain):
            before = results.get(name)
            same = before is not None and before["tables"] == shown
            origin = before if same else _transcript(plain)
            found[name] = {**origin, **_described(plain), "tables": shown}
        numbers = itertools.count()

        def marked(match, name=name, numbers=numbers):
            return f"<!-- results: {name} {next(numbers)} -->\n\n{match[0]}"

        plain = TABLE.sub(marked, plain)
        parts.append(_with_source(plain, name, found[name]) if shown else plain)
    return "".join(parts), found


def _with_source(part, name, entry):
    """Return a section with its source after its first command, or after its heading."""
    command = COMMAND.search(part)
    place = command.end() if command else part.index("\n\n") + 2
    return part[:place] + _sourced(name, entry) + part[place:]


def _transcript(part):
    """Describe a recorded run: this machine, on the last day that the text names, or else today."""
    here, days = machine(), re.findall(r"20\d\d-\d\d-\d\d", part)
    return {**_described(part), "how": TRANSCRIBED, **here, "date": max(days) if days else here["date"]}


def _described(part):
    command = COMMAND.search(part)
    heading = part.partition("\n")[0].lstrip("# ")
    return {"heading": heading, "command": command[1].strip() if command else None}


# ---- measuring ------------------------------------------------------------------------------------


def commands(entry, places):
    """Return the programs of a section as words, with what the user has in their places."""
    text = (entry["command"] or "").replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [[places.get(word, word) for word in line] for line in lines if line and line[0] != "git"]


def cheap(entry):
    lines = [words for _, words in map(_settings, commands(entry, {}))]
    return bool(lines) and all(line[0] == "python" and " ".join(line[1:]) in CHEAP for line in lines)


def _settings(words):
    """Return the environment variables that a command sets, and the command without them."""
    found = list(itertools.takewhile(re.compile(r"[A-Z_]+=").match, words))
    return dict(word.split("=", 1) for word in found), words[len(found) :]


def measure(name, entry, places):
    """Run the commands of a section and store their tables; return what went wrong, or None."""
    found, before = [], _seconds()
    for settings, words in map(_settings, commands(entry, places)):
        print(f"{name}: {shlex.join(words)}", file=sys.stderr, flush=True)
        if words[0] != "python":
            return f"{name}: {words[0]} is no measurement of tables; change the page, then --adopt"
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **settings},
        )
        if done.returncode:
            return f"{name}: {shlex.join(words)} ended with exit code {done.returncode}"
        if words[1:3] == ["-m", "pytest"]:
            if skipped := re.search(r"\d+ skipped", done.stdout):
                return f"{name}: {skipped[0]} by {shlex.join(words)}; install what they need"
            found = entry["tables"]
        else:
            found = joined(found, tables(done.stdout))
    if [table["columns"] for table in found] != [table["columns"] for table in entry["tables"]]:
        return f"{name}: the commands print other tables than the page has; adapt the page, then --adopt"
    spent = {"processor_seconds": round(_seconds() - before)}
    store(name, {**entry, **machine(), **spent, "how": MEASURED, "tables": found})
    return None


def joined(before, after):
    """Return the tables of two commands, of which the second may continue the last table of the first."""
    if before and after and before[-1]["columns"] == after[0]["columns"]:
        both = {**before[-1], "rows": before[-1]["rows"] + after[0]["rows"]}
        return [*before[:-1], both, *after[1:]]
    return before + after


def _seconds():
    """Return the processor seconds of all programs that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="append", default=[], metavar="NAME")
    parser.add_argument("--place", action="append", default=[], metavar="WORD=PATH")
    for option in ("--list", "--page", "--adopt"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    results = stored()
    if options.list:
        for name, entry in results.items():
            print(f"{name}: {source(entry).strip('*')}")
        return
    if unknown := sorted(set(options.again) - results.keys()):
        sys.exit(f"--again: no section {', '.join(unknown)}; --list shows their names")
    if options.adopt:
        kept = {}
        for page, text in pages().items():
            text, found = adopted(text, results)
            (FOLDER / f"{page}.md").write_text(text, encoding="utf-8")
            kept |= found
        for name in results.keys() - kept.keys():
            (FOLDER / f"{name}.json").unlink()
        for name, entry in kept.items():
            store(name, entry)
        _write_pages()
        return
    wanted = options.again or [name for name, e in results.items() if cheap(e) and e["how"] != MEASURED]
    places = {word: str(Path(path).resolve()) for word, _, path in (p.partition("=") for p in options.place)}
    failures = []
    for name in [] if options.page else wanted:
        failures.append(measure(name, results[name], places))
        _write_pages()
    _write_pages()
    if any(failures):
        sys.exit("\n".join(filter(None, failures)))


def _write_pages():
    for page, text in pages().items():
        (FOLDER / f"{page}.md").write_text(written(text, stored()), encoding="utf-8")


if __name__ == "__main__":
    main()
