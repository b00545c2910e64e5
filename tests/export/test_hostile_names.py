"""In a C header, labels and names are read only as the bytes of a string or as a comment.

The slow tests compile hundreds of labels with every compiler and standard.
"""

import random
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from test_exports import random_model

from partirvm import RVMClassifier
from partirvm.errors import UsageError
from partirvm.export.c_header import c_string
from partirvm.model import ClassModel
from partirvm.types import Columns

EVIL = '}; static void __attribute__((constructor)) evil(void) { extern int puts(const char *); puts("RUN"); } //'

PIECES = [
    *("??/", "??'", "??(", "??)", "??!", "??<", "??>", "??-", "??=", "?", "???/", "?\\?/", "\\?"),
    *("\\", "\\\\", '"', '\\"', "'", "\n", "\r", "\r\n", "\\\n", "\\\r\n", "??/\n", "\\ \n"),
    *("\t", "\v", "\f", "\b", "\a", "\x01", "\x1b[2J", "\x1a", "\x7f", "\x80", "\x85", "\xa0"),
    *("*/", "/*", "//", "/", "*", "*\\\n/", "*??/\n/", "*//*", "#include </etc/passwd>\n"),
    *("<%", "%>", "<:", ":>", "%:", "%:%:", "%s", "%n", 'R"(', ')"', "u8", "$(touch x)"),
    "`touch x`",
    *("\u2028", "\u2029", "\u202e", "\u2066", "\ufeff", "\ud800", "\udcff", "\u0301"),
    *("Straße", "価格", "表", "😀", "é", "\\u0022", "\\U0000005c", "\\x22", "\\42"),
    "\\N{QUOTATION MARK}",
    *("0", "7", "9", "a", "f", "F", "e", "{{ 7 * 7 }}", "{% raw %}"),
    *(EVIL, "", " ", "x" * 600, "?" * 600, "\\" * 600, "é" * 600),
]
"""Text that a compiler, a preprocessor, a terminal or a template could misread."""

C = ["-std=c99", "-std=c99 -trigraphs", "-std=gnu99 -trigraphs", "-std=c11", "-std=c17"]
C += ["-std=gnu17", "-std=c2x"]
CPP = ["-ansi", "-std=c++98", "-std=c++11 -trigraphs", "-std=c++14", "-std=c++17", "-std=c++20"]
CPP += ["-std=gnu++17 -trigraphs"]
COMPILERS = {"gcc": C, "clang": C, "g++": CPP, "clang++": CPP}
WARNINGS = [
    "-Wall",
    "-Wextra",
    "-pedantic",
    "-Werror",
    "-Wtrigraphs",
    "-Wcomment",
    "-Wno-unused-function",
]


def labels(number, seed):
    """Return this many different labels: each piece, then random strings of up to eight pieces."""
    rng = random.Random(seed)
    found = dict.fromkeys(PIECES)
    while len(found) < number:
        found["".join(rng.choices(PIECES, k=rng.randint(2, 8)))] = None
    return list(found)[:number]


def bytes_of(label):
    """Return the bytes that a C program compares; a lone surrogate has the bytes of its code
    point."""
    return label.encode("utf-8", "surrogatepass")


def compile_and_run(compiler, flags, folder, text):
    """Return what a C or C++ program prints; it must compile without warnings."""
    source = folder / f"t.{'cpp' if '++' in compiler else 'c'}"
    program = folder / "t"
    source.write_text(text)
    command = [compiler, *flags.split(), *WARNINGS, "-I", folder, "-o", program, source, "-lm"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), (compiler, flags, done.stderr[:2000])
    return subprocess.run([program], capture_output=True, check=True).stdout


def header(folder, name, found):
    """Write a header whose classes, features and levels have hostile names."""
    model = next(made for seed in range(220) if isinstance(made := random_model(seed), ClassModel))
    C = 1 if len(found) == 2 else len(found)
    M = model.design.n_columns
    rng = default_rng(0)
    columns = Columns(tuple(found[:3]), classes=tuple(found))
    weights = {"mean": rng.normal(size=(M, C)), "root": np.stack([np.eye(M)] * C)}
    link = {"ramp": None, "moderate": False, "likelihood": "multinomial"}
    replace(model, columns=columns, **weights, **link).to_c(folder / f"{name}.h")


PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "m.h"
int main(void) {{
    for (int k = 0; k < {count}; k++) printf("%d:", (int)strlen(m_labels[k])), fputs(m_labels[k], stdout);
    return m_self_test() > 1e-3;
}}
"""


def printed(found):
    """Return what the program prints for labels: the number of bytes of each, and the bytes."""
    return b"".join(b"%d:%s" % (len(each), each) for each in map(bytes_of, found))


@pytest.mark.usefixtures("processes")
def test_labels_survive_a_header(tmp_path):
    found = labels(len(PIECES) + 20, 0)
    header(tmp_path, "m", found)
    (tmp_path / "m.h").read_bytes().decode("ascii")  # the encoding does not change the meaning
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed: the header is not compiled")
    program = PROGRAM.format(count=len(found))
    assert compile_and_run("gcc", "-std=c99", tmp_path, program) == printed(found)


@pytest.mark.usefixtures("processes")
def test_a_label_with_a_trigraph_does_not_run_code(tmp_path):
    X = default_rng(0).normal(size=(60, 2))
    RVMClassifier(gamma=0.5, random_state=0).fit(X, np.where(X[:, 0] > 0, "!??/", EVIL)).to_c(
        tmp_path / "m.h"
    )
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed: the header is not compiled")
    program = PROGRAM.format(count=2)
    assert compile_and_run("gcc", "-std=c99", tmp_path, program) == printed(["!??/", EVIL])


@pytest.mark.parametrize("label", ["a\0b", "\0", "\0*/"])
def test_a_label_that_c_cannot_represent_is_refused(label, tmp_path):
    with pytest.raises(UsageError, match=r"NUL.*to_onnx or to_numpy"):
        header(tmp_path, "m", ["a", label, "b"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_many_labels_survive_with_every_standard(compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    for number, flags in enumerate(COMPILERS[compiler]):
        found = labels(400, number)
        header(tmp_path, "m", found)
        assert compile_and_run(
            compiler, flags, tmp_path, PROGRAM.format(count=len(found))
        ) == printed(found)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_strings_have_the_same_bytes_in_the_oldest_standard(compiler, tmp_path):
    """``-ansi`` has no inline functions, but the same literals."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    found = [label for label in labels(400, 1) if len(bytes_of(label)) <= 500]
    calls = [
        f'    printf("%d:", (int)strlen({each})); fputs({each}, stdout);'
        for each in map(c_string, found)
    ]
    lines = "\n".join(calls)
    text = (
        f"#include <stdio.h>\n#include <string.h>\nint main(void) {{\n{lines}\n    return 0;\n}}\n"
    )
    assert compile_and_run(compiler, "-ansi", tmp_path, text) == printed(found)
