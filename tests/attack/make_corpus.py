"""Write corpus/: small files that once hung a reader, filled the memory or broke a message.

Run it after adding one: python tests/attack/make_corpus.py. A name is the kind of file (fuzz_worker.py) and
why it is here. A file that the fuzz test finds is copied there as it is.
"""

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import hostile_files  # noqa: E402

CORPUS = HERE / "corpus"
TOY = (HERE.parent / "toy_chip.toml").read_text(encoding="utf-8")
HDF5 = (
    hostile_files.endless_heap,
    hostile_files.large_chunk,
    hostile_files.link_fan,
    hostile_files.endless_group,
    hostile_files.lists,
)
# A tuple that holds twice a tuple that holds twice a tuple, and so on: it takes for ever to hash.
DOUBLED = b"".join(b"q%ch%c\x86" % (level, level) for level in range(60))
OTHERS = {
    "profile-lost-header": TOY.replace("[formats]\n", "").encode(),
    "profile-absurd-bits": TOY.replace("13,", "1000000000000,").encode(),
    "profile-deep": b"a = " + b"[" * 20_000,
    "manifest-deep": b"[" * 20_000,
    "manifest-many-digits": b"1" * 5000,
    "pickle-doubled": b"\x80\x02}(N" + DOUBLED + b"Nu.",
    "pickle-large-memo": b"\x80\x02}r\xff\xff\xff\x7f.",
}


def main():
    CORPUS.mkdir(exist_ok=True)
    for build in HDF5:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copyfile(build(Path(folder)), CORPUS / f"netx-{build.__name__.replace('_', '-')}")
    for name, content in OTHERS.items():
        (CORPUS / name).write_bytes(content)


if __name__ == "__main__":
    main()
