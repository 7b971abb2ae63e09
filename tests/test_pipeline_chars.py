"""The character table against Python's own idea of characters, where both know the same Unicode."""

import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from corpusmill.pipeline.text import chars, make_chars


def holds(flag: int) -> set[int]:
    return set(np.flatnonzero(chars.CLASS & flag).tolist())


def test_ascii_flags_equal_the_string_methods() -> None:
    for code in range(128):
        char = chr(code)
        assert bool(chars.CLASS[code] & chars.SPACE) == char.isspace()
        assert bool(chars.CLASS[code] & chars.ALPHA) == char.isalpha()
        assert bool(chars.CLASS[code] & chars.DIGIT) == char.isdigit()
        assert bool(chars.CLASS[code] & chars.UPPER) == char.isupper()
        assert chr(chars.LOWER[code]) == char.lower()


def test_letters_known_to_the_table_are_letters_to_every_newer_python() -> None:
    assert all(chr(code).isalpha() for code in holds(chars.ALPHA))


@pytest.mark.skipif(
    unicodedata.unidata_version != chars.UNICODE_VERSION, reason="another Unicode than the table's"
)
def test_the_packaged_table_is_what_the_script_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Path(make_chars.__file__).with_name("chars.npz").read_bytes()
    monkeypatch.setattr(make_chars, "__file__", str(tmp_path / "make_chars.py"))
    make_chars.main()
    with np.load(tmp_path / "chars.npz") as new, np.load(Path(chars.__file__).with_name("chars.npz")) as old:
        assert {name: new[name].tolist() for name in new.files} == {
            name: old[name].tolist() for name in old.files
        }
    assert len(written) < 20_000


def test_scripts_without_spaces_are_flagged_and_others_are_not() -> None:
    for char in "中々ーあアｱกิລຸខ្မမိ":
        assert chars.CLASS[ord(char)] & chars.NOSPACE, char
    for char in "aя한ع。、๑1 ":
        assert not chars.CLASS[ord(char)] & chars.NOSPACE, char


def test_terminal_punctuation_holds_full_stops_of_many_scripts_but_no_quotes_and_no_ellipsis() -> None:
    assert len(holds(chars.TERMINAL)) == 159
    for char in ".!?。！？؟।።။៕":  # noqa: RUF001
        assert chars.CLASS[ord(char)] & chars.TERMINAL, char
    for char in "\"'”…,:;)":
        assert not chars.CLASS[ord(char)] & chars.TERMINAL, char
    assert holds(chars.SENTENCE) < holds(chars.TERMINAL) < holds(chars.BARE)


def test_line_breaks_are_those_of_splitlines() -> None:
    assert holds(chars.LINEBREAK) == {10, 11, 12, 13, 28, 29, 30, 0x85, 0x2028, 0x2029}


def test_lower_case_is_simple_and_leaves_other_letters_alone() -> None:
    assert [chr(chars.LOWER[ord(char)]) for char in "ÄΣЯİ中ß1"] == list("äσяi中ß1")  # noqa: RUF001
    assert chars.LOWER[sys.maxunicode] == sys.maxunicode
