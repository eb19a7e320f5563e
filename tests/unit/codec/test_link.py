import pytest
from multiformats import CID

import gossiplog
from gossiplog.codec import dag_json, pcf
from gossiplog.codec.cid import UnknownLink, check_cid, is_link, link_from_bytes, link_from_text, link_text
from gossiplog.errors import DecodeError

RAW_SHA256 = bytes.fromhex("01551220" + "11" * 32)
V0 = bytes.fromhex("1220" + "22" * 32)
UNKNOWN_CODEC = bytes.fromhex("01ffff03" + "0003616263")


def test_a_known_cid_becomes_the_librarys_object():
    link = link_from_bytes(RAW_SHA256)
    assert isinstance(link, CID)
    assert bytes(link) == RAW_SHA256
    assert is_link(link)


def test_links_are_those_that_the_library_decodes():
    for cid in (
        RAW_SHA256,
        V0,
        bytes.fromhex("01550000"),
        bytes.fromhex("01711220") + bytes(32),
        bytes.fromhex("0171111401")[:4] + bytes(20),
    ):
        link = link_from_bytes(cid)
        assert link == CID.decode(cid)
        assert (link.version, link.codec, link.hashfun, link.raw_digest) == (lambda c: (c.version, c.codec, c.hashfun, c.raw_digest))(
            CID.decode(cid)
        )
        assert str(link) == str(CID.decode(cid))


def test_an_unknown_codec_or_hash_keeps_its_bytes():
    for cid in (UNKNOWN_CODEC, bytes.fromhex("0155b2960200"), bytes.fromhex("0155120107")):
        link = link_from_bytes(cid)
        assert bytes(link) == cid
        assert is_link(link)
    assert link_from_bytes(UNKNOWN_CODEC) == UnknownLink(UNKNOWN_CODEC)
    assert str(link_from_bytes(UNKNOWN_CODEC)).startswith("b")


@pytest.mark.parametrize("cid", ["0155920000", "015500810061", "01559280808080808080800000", "0155" + "12" + "a000" + "00" * 32])
def test_hash_and_length_may_be_padded_as_the_reference_keeps_them(cid):
    data = bytes.fromhex(cid)
    link = link_from_bytes(data)
    assert bytes(link) == bytes(link_from_text(link_text(data))) == data
    assert pcf.encode(link) == pcf.encode(pcf.decode(pcf.encode(link)))
    assert dag_json.decode(dag_json.encode(link)) == link


def test_the_text_is_the_references():
    assert link_text(V0) == "QmQdtkyNprt8aLLivRsMoiYvxvot1SYoua5BgAg5vgc233"
    assert link_text(bytes.fromhex("01550000")) == "bafkqaaa"
    for cid in (RAW_SHA256, V0, UNKNOWN_CODEC):
        assert bytes(link_from_text(link_text(cid))) == cid


@pytest.mark.parametrize(
    "cid",
    [
        "",
        "00",
        "01",
        "0155",
        "015512",
        "01551220",
        "0155122011",
        RAW_SHA256.hex() + "00",
        "81005500" + "0161",
        "01d500000161",
        "0155" + "92" + "80" * 146 + "00" + "00",
        "0055000161",
        "0255000161",
        "1205" + "22" * 5,
        "1220" + "22" * 31,
        "92001220" + "22" * 32,
        "00701220" + "22" * 32,
        "01" + "ff" * 7 + "1f" + "0000",
        "015500" + "ff" * 8 + "7f",
    ],
)
def test_malformed_cids_are_refused(cid):
    with pytest.raises(DecodeError):
        check_cid(bytes.fromhex(cid))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "Qm",
        "x",
        "bafk!",
        "BAFKQAAA",
        "zb2rhXnuDbU9Y65UfpjeuDZwzzWcENg9WRU9QNKegaCvmsXkk",
        "Qm" + "1" * 44,
        "Qm" + "0" * 44,
        "ba",
        "bafkqaab",
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(DecodeError):
        link_from_text(text)


def test_other_values_are_no_links():
    for value in (None, 1, "bafkqaaa", b"", {}, []):
        assert not is_link(value)


@pytest.mark.parametrize("cid", [RAW_SHA256, V0, UNKNOWN_CODEC])
def test_the_public_name_tells_a_link_from_a_text(cid):
    assert isinstance(link_from_bytes(cid), gossiplog.Link)
    assert not isinstance(link_text(cid), gossiplog.Link)
