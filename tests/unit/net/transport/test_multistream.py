import pytest

from gossiplog.errors import LocalProtocolError, ProtocolNotSupported, RemoteProtocolError
from gossiplog.net.transport.multistream import LINE_BYTES_MAX, MULTISTREAM, PROPOSALS_MAX, Offer, Proposal, encode_line

HEADER = b"\x13/multistream/1.0.0\n"
PUSH, SYNC = "/canvas/v1/topic/push", "/canvas/v1/topic/sync"


def test_lines_are_those_of_the_recording():
    assert encode_line(MULTISTREAM) == HEADER
    assert encode_line("/canvas/v1/interop.test/push").hex() == "1d2f63616e7661732f76312f696e7465726f702e746573742f707573680a"


def test_both_sides_agree_and_keep_what_follows():
    proposal, offer = Proposal([PUSH]), Offer({PUSH, SYNC})
    answers = offer.receive(proposal.start() + b"early data")
    assert answers == HEADER + encode_line(PUSH)
    assert offer.protocol == PUSH
    assert offer.take_rest() == b"early data"
    assert proposal.receive(answers + b"answer") == b""
    assert proposal.protocol == PUSH
    assert proposal.take_rest() == b"answer"


@pytest.mark.parametrize("size", [1, 2, 19, 20, 21])
def test_agreement_does_not_depend_on_how_the_bytes_are_cut(size):
    proposal, offer = Proposal([PUSH, SYNC]), Offer({SYNC})
    to_offer, to_proposal = proposal.start(), b""
    while proposal.protocol is None:
        for at in range(0, len(to_offer), size):
            to_proposal += offer.receive(to_offer[at : at + size])
        to_offer = b""
        for at in range(0, len(to_proposal), size):
            to_offer += proposal.receive(to_proposal[at : at + size])
        to_proposal = b""
    assert proposal.protocol == offer.protocol == SYNC


def test_the_next_protocol_is_proposed_when_one_is_not_available():
    proposal = Proposal(["/meshsub/1.2.0", "/meshsub/1.1.0"])
    assert proposal.receive(HEADER + b"\3na\n") == encode_line("/meshsub/1.1.0")
    assert proposal.receive(encode_line("/meshsub/1.1.0")) == b""
    assert proposal.protocol == "/meshsub/1.1.0"


def test_a_peer_that_speaks_none_of_them_is_an_error_that_names_them():
    proposal = Proposal([PUSH, SYNC])
    proposal.receive(HEADER + b"\3na\n")
    with pytest.raises(ProtocolNotSupported, match=f"{PUSH}, {SYNC}"):
        proposal.receive(b"\3na\n")


@pytest.mark.parametrize("line", [b"\4abc\n", b"\x13/multistream/2.0.0\n", b"\3abc", b"\4\xff\xfe\xff\n", b"\0", b"\x81\x08", b"\xff" * 11])
def test_lines_that_are_none_are_refused_by_both_sides(line):
    for side in (Proposal([PUSH]), Offer({PUSH})):
        with pytest.raises(RemoteProtocolError):
            side.receive(line)


def test_an_answer_for_another_protocol_is_refused():
    with pytest.raises(RemoteProtocolError, match="in answer to"):
        Proposal([PUSH]).receive(HEADER + encode_line(SYNC))


@pytest.mark.parametrize("name", [b"/\xff\xfe\n", b"/caf\xc3\n"])
def test_a_name_that_is_no_utf8_is_refused(name):
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        Offer({PUSH}).receive(HEADER + bytes([len(name)]) + name)


def test_the_longest_name_is_taken_and_a_longer_one_refused_before_it_is_held():
    name = "/" + "n" * (LINE_BYTES_MAX - 2)
    offer = Offer({name})
    offer.receive(HEADER + encode_line(name))
    assert offer.protocol == name
    with pytest.raises(RemoteProtocolError):
        Offer({name}).receive(HEADER + b"\x81\x08")
    with pytest.raises(LocalProtocolError):
        encode_line(name + "n")


def test_proposals_on_one_stream_are_bounded():
    offer = Offer({PUSH})
    unknown = encode_line("/unknown")
    assert offer.receive(HEADER + unknown * PROPOSALS_MAX) == HEADER + b"\3na\n" * PROPOSALS_MAX
    with pytest.raises(RemoteProtocolError):
        offer.receive(unknown)


def test_a_proposal_needs_a_protocol_and_a_protocol_one_line():
    for protocols in ([], ["two\nlines"]):
        with pytest.raises(LocalProtocolError):
            Proposal(protocols)
