"""Prints how large the kernel is beside its budget. A number everybody sees, not a bound that is gamed."""

from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[2] / "kernel" / "ahpd"
BUDGET = {"protocol": 900, "the rest": 4000}


def lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def test_the_size_of_the_kernel_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(KERNEL.rglob("*.py"))
    protocol = [file for file in files if file.is_relative_to(KERNEL / "protocol")]
    rest = [file for file in files if file not in protocol]
    with capsys.disabled():
        print(f"\nkernel: protocol {lines(protocol)} lines (budget {BUDGET['protocol']}),", end=" ")
        print(f"the rest {lines(rest)} lines (budget {BUDGET['the rest']}); see docs/decisions/0005")
        for part in sorted({file.relative_to(KERNEL).parts[0] for file in rest if file.parent != KERNEL}):
            print(f"  {part}: {lines([file for file in rest if part in file.relative_to(KERNEL).parts[:1]])}")
    assert files, "no kernel found to measure"
    longest = max(files, key=lambda file: lines([file]))
    assert lines([longest]) < 700, f"{longest} no longer answers one question"
