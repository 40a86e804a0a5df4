"""Run C programs of exports on microcontrollers, in QEMU: every spike and voltage against the reference.

    python .ci/mcu.py [--json] [PROJECT ...]      folders c/ of exports; without any, the digits example

Installs nothing: it says which of the cross compilers and emulators are missing. Each program is compiled
with its self-test and run; then the network alone is compiled as for a device, its flash and memory are
counted by `size`, and the instructions of an inference by QEMU (-icount: instructions, and not cycles, of
which a device takes more).
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf "
    "qemu-system-arm qemu-system-misc"
)
PICOLIBC = (
    "--specs=picolibc.specs",
    "--oslib=semihost",
    "--crt0=hosted",
    "-Wl,--defsym=__flash=0x80000000,--defsym=__flash_size=0x400000,--defsym=__ram=0x80400000,"
    "--defsym=__ram_size=0x400000,--defsym=__stack_size=0x4000",
)
NEWLIB = ("--specs=rdimon.specs", "-nostartfiles", "-Wl,-T,{work}/device.ld", "{work}/startup.c")
STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


@dataclass(frozen=True)
class Device:
    """A processor, its compiler, and the machine of QEMU that has it."""

    name: str
    compiler: str
    flags: tuple[str, ...]
    library: tuple[str, ...]
    emulator: tuple[str, ...]
    flash: int = 4096  # kB
    ram: int = 4096
    megahertz: float = 25  # of the timer that QEMU gives it


ARM, RISCV = "arm-none-eabi", "riscv64-unknown-elf"
DEVICES = (
    Device(  # the processor of the BBC micro:bit is a Cortex-M0, which has the instructions of an M0+
        "Cortex-M0+",
        ARM,
        ("-mcpu=cortex-m0plus", "-mthumb"),
        NEWLIB,
        ("qemu-system-arm", "-M", "microbit"),
        flash=256,
        ram=16,
        megahertz=16,
    ),
    Device("Cortex-M4", ARM, ("-mcpu=cortex-m4", "-mthumb"), NEWLIB, ("qemu-system-arm", "-M", "mps2-an386")),
    Device("Cortex-M7", ARM, ("-mcpu=cortex-m7", "-mthumb"), NEWLIB, ("qemu-system-arm", "-M", "mps2-an500")),
    Device(
        "RV32IMAC",
        RISCV,
        ("-march=rv32imac", "-mabi=ilp32"),
        PICOLIBC,
        ("qemu-system-riscv32", "-M", "virt", "-bios", "none"),
        megahertz=1000,
    ),
)

LINKER = """
MEMORY { FLASH (rx) : ORIGIN = 0x0, LENGTH = {flash}K  RAM (rwx) : ORIGIN = 0x20000000, LENGTH = {ram}K }
ENTRY(Reset)
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
  .ARM.exidx : { *(.ARM.exidx*) } > FLASH
  .data : { data_start = .; *(.data*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH
  data_load = LOADADDR(.data);
  .bss : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(4); bss_end = .; } > RAM
  end = .;
  stack_top = ORIGIN(RAM) + LENGTH(RAM);
}
"""
STARTUP = """
#include <stdint.h>
#include <stdlib.h>
extern uint32_t stack_top, data_start, data_end, data_load, bss_start, bss_end;
extern void initialise_monitor_handles(void);
int main(void);
void Reset(void);
void _fini(void);
void _fini(void) {}
void Reset(void) {
    const uint32_t *from = &data_load;
    for (uint32_t *to = &data_start; to < &data_end; ++to) *to = *from++;
    for (uint32_t *to = &bss_start; to < &bss_end; ++to) *to = 0;
    initialise_monitor_handles();
    exit(main());
}
__attribute__((section(".vectors"), used)) static const void *const vectors[2] = {&stack_top, (void *)Reset};
"""
# With -icount shift=0 an instruction takes a nanosecond of QEMU's clock: RISC-V counts instructions itself,
# and the timer of a Cortex-M counts down, once in {nanoseconds} of them.
COUNTER = """
#include <stdio.h>
#include "{name}.h"
#include "samples.h"
#if defined(__arm__)
static volatile uint32_t *const systick = (volatile uint32_t *)0xe000e010u;
static uint32_t count(void) {{ return 0xffffffu - systick[2]; }}
#else
static uint32_t count(void) {{
    uint32_t instructions;
    __asm__ volatile(".option arch, +zicsr\\n csrr %0, minstret" : "=r"(instructions) : : "memory");
    return instructions;
}}
#endif
int main(void) {{
    static {prefix}_score_t scores[{upper}_OUTPUTS];
    double all = 0;
#if defined(__arm__)
    const uint32_t mask = 0xffffffu;
    systick[1] = mask;
    systick[2] = 0;
    systick[0] = 5;
#else
    const uint32_t mask = 0xffffffffu;
#endif
    for (int k = 0; k < SAMPLES; ++k) {{
        const uint32_t before = count();
        {prefix}_run(samples + (size_t)k * SAMPLE_SIZE, SAMPLE_STRIDE, scores);
        all += (double)((count() - before) & mask) * {nanoseconds};
    }}
    printf("instructions %lu\\n", (unsigned long)(all / SAMPLES));
    (void)expected;
    (void)expected_hash;
    return 0;
}}
"""


def tools(device: Device) -> list[str]:
    """The programs that a device needs."""
    return [f"{device.compiler}-gcc", f"{device.compiler}-size", device.emulator[0]]


def compiled(device: Device, work: Path, sources: list[Path], program: Path, *flags: str) -> Path:
    """Compile and link a program."""
    script = LINKER.replace("{flash}", str(device.flash)).replace("{ram}", str(device.ram))
    (work / "device.ld").write_text(script)
    library = [word.format(work=work) for word in device.library]
    command = [
        f"{device.compiler}-gcc",
        *device.flags,
        *flags,
        *map(str, sources),
        "-o",
        str(program),
        *library,
    ]
    subprocess.run(command, check=True)
    return program


def emulated(device: Device, program: Path, *flags: str) -> tuple[str, bool]:
    """Run a program in QEMU; return what it printed, and whether it ended with success."""
    semihosting = ("-semihosting-config", "enable=on,target=native")
    command = [*device.emulator, "-nographic", *semihosting, *flags, "-kernel", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return (done.stdout + done.stderr).strip(), done.returncode == 0


def run_on(device: Device, project: Path, work: Path) -> dict[str, Any]:
    """Test a project on a device; return what was found."""
    source = next((project / "src").glob("*.c"))
    prefix = re.search(r"int (\w+)_run\(", source.with_suffix(".h").read_text())[1]
    include = (f"-I{project / 'src'}", f"-I{project / 'test'}")
    test = compiled(
        device, work, [project / "test" / "selftest.c"], work / "selftest", "-O2", "-std=gnu99", *include
    )
    text, good = emulated(device, test)
    alone = work / "network.o"
    freestanding = PICOLIBC[:1] if device.library is PICOLIBC else ()
    command = [
        f"{device.compiler}-gcc",
        *device.flags,
        *STRICT,
        *freestanding,
        *include,
        "-c",
        str(source),
        "-o",
        str(alone),
    ]
    subprocess.run(command, check=True)
    sizes = subprocess.run([f"{device.compiler}-size", alone], capture_output=True, text=True, check=True)
    flash, data, zero = map(int, sizes.stdout.splitlines()[1].split()[:3])
    counter = work / "counter.c"
    counter.write_text(
        COUNTER.format(
            name=source.stem, prefix=prefix, upper=prefix.upper(), nanoseconds=1000 / device.megahertz
        )
    )
    counted = compiled(device, work, [counter, source], work / "counter", "-O2", "-std=gnu99", *include)
    instructions = re.search(r"instructions (\d+)", emulated(device, counted, "-icount", "shift=0")[0])
    return {
        "project": str(project),
        "device": device.name,
        "equal": good,
        "said": text.splitlines()[-1] if text else "nothing",
        "flash": flash + data,
        "ram": data + zero,
        "instructions": int(instructions[1]) if instructions else None,
    }


def digits(work: Path) -> Path:
    """Export the digits example for a microcontroller, without verification by Lava."""
    command = [sys.executable, "-m", "mpbn_deploy.export", ROOT / "examples" / "models" / "digits.pt"]
    command += ["--target", "rp2040", "--out", work / "digits.rp2040", "--budget", "0"]
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
    return work / "digits.rp2040" / "c"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("projects", nargs="*", type=Path, metavar="PROJECT")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missing = sorted({tool for device in DEVICES for tool in tools(device) if shutil.which(tool) is None})
    if missing:
        print(f"not found: {', '.join(missing)}; on Debian: apt-get install {PACKAGES}")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "startup.c").write_text(STARTUP)
        usable = [device for device in DEVICES if all(map(shutil.which, tools(device)))]
        for project in options.projects or ([digits(work)] if usable else []):
            rows += [run_on(device, project.resolve(), work) for device in usable]
    for row in rows:
        if not options.json:
            print(
                f"{row['device']}: {row['said']}; flash {row['flash']:,} bytes, RAM {row['ram']:,} bytes, "
                f"{row['instructions'] or 0:,} instructions per inference (QEMU)"
            )
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["equal"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
