from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.extract.charset import codec, decode

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. Широкая электрификация южных губерний даст мощный толчок подъёму сельского хозяйства. "
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所でニャーニャー泣いていた事だけは記憶している。"
KOREAN = "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다. "
CHINESE = "人人生而自由尊严和权利上一律平等。他们赋有理性和良心。并应以兄弟关系的精神相对待。"
GERMAN = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich, während die Mädchen süße Äpfel schälen. "

TEXTS = [
    ("windows-1251", "cp1251", RUSSIAN),
    ("koi8-r", "koi8-r", RUSSIAN),
    ("shift_jis", "cp932", JAPANESE),
    ("euc-jp", "euc-jp", JAPANESE),
    ("iso-2022-jp", "iso-2022-jp", JAPANESE),
    ("euc-kr", "cp949", KOREAN),
    ("gb2312", "gb18030", CHINESE),
    (
        "big5",
        "big5",
        "人人生而自由尊嚴和權利上一律平等。他們賦有理性和良心。並應以兄弟關係的精神相對待。",
    ),
    ("iso-8859-1", "latin-1", GERMAN),
    ("windows-1252", "cp1252", GERMAN),
]


def page(text: str, meta: str = "") -> str:
    return f"<html><head>{meta}<title>x</title></head><body><p>{text * 3}</p></body></html>"


@pytest.mark.parametrize(("label", "encoding", "text"), TEXTS)
def test_the_http_header_is_used(label: str, encoding: str, text: str) -> None:
    found = decode(page(text).encode(encoding), label)
    assert (found.text, found.by, found.replaced) == (page(text), "http", 0)


@pytest.mark.parametrize(("label", "encoding", "text"), TEXTS)
def test_the_meta_element_is_used_when_the_header_is_silent(label: str, encoding: str, text: str) -> None:
    whole = page(text, f'<meta http-equiv="Content-Type" content="text/html; charset={label}">')
    found = decode(whole.encode(encoding))
    assert (found.text, found.by) == (whole, "meta")


@pytest.mark.parametrize(("label", "encoding", "text"), TEXTS)
def test_a_header_that_wrongly_says_utf_8_is_passed_over(label: str, encoding: str, text: str) -> None:
    whole = page(text, f'<meta charset="{label}">')
    assert decode(whole.encode(encoding), "utf-8").text == whole


@pytest.mark.parametrize(("label", "encoding", "text"), TEXTS)
def test_without_any_label_the_bytes_are_judged(label: str, encoding: str, text: str) -> None:
    found = decode(page(text).encode(encoding))
    assert (found.text, found.by) == (page(text), "detection")


@pytest.mark.parametrize("label", ["iso-8859-1", "windows-1251", "shift_jis", "no-such-charset", None])
def test_valid_utf_8_is_utf_8_whatever_is_declared(label: str | None) -> None:
    for text in (RUSSIAN, JAPANESE, GERMAN):
        whole = page(text, f'<meta charset="{label}">')
        assert decode(whole.encode(), label).text == whole


def test_two_letters_in_latin_1_with_a_right_meta() -> None:
    data = '<html><head><meta charset="iso-8859-1"></head><body>öö</body></html>'.encode("latin-1")
    assert "öö" in decode(data).text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_comes_first_and_goes(encoding: str) -> None:
    found = decode(page(GERMAN).encode(encoding), "windows-1251")
    assert (found.text, found.by) == (page(GERMAN), "bom")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("label", ["utf-16", "utf-8", "windows-1252", None])
@pytest.mark.parametrize("text", ["plain letters", RUSSIAN, GERMAN])
def test_utf_16_without_a_mark_is_told_by_its_markup(encoding: str, label: str | None, text: str) -> None:
    assert decode(page(text).encode(encoding), label).text == page(text)


def test_a_page_cut_inside_a_character_stays_utf_8() -> None:
    data = page(RUSSIAN).encode()
    cut = data[: data.rindex("ч".encode()) + 1]
    found = decode(cut, "utf-8")
    assert found.charset == "utf-8"
    assert found.text.endswith("\ufffd")
    assert found.replaced == 1 / len(found.text)


def test_what_nothing_fits_is_cp1252_with_replacement() -> None:
    found = decode(b"<p>\x81\x8d\x8f\x90\x9d \xe4</p>")
    assert "<p>" in found.text and found.text.endswith("</p>")


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("latin1", "cp1252"),
        ("ascii", "cp1252"),
        ("GBK", "gb18030"),
        ("utf8", "utf-8"),
        ("x-sjis", "cp932"),
        ("ks_c_5601-1987", "cp949"),
    ],
)
def test_labels_mean_what_browsers_take_them_for(label: str, name: str) -> None:
    assert codec(label) == name


@pytest.mark.parametrize(
    "label", ["utf-7", "base64", "rot13", "idna", "unicode_escape", "zip", "", "none", "\0"]
)
def test_labels_of_no_web_charset_are_not_believed(label: str) -> None:
    assert codec(label) is None


@given(st.binary(max_size=200), st.text(max_size=12))
def test_any_bytes_under_any_label_decode(data: bytes, label: str) -> None:
    found = decode(data, label)
    found.text.encode("utf-8", "surrogatepass")
    assert 0 <= found.replaced <= 1
