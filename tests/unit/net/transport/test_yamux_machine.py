import struct

import pytest

from gossiplog.errors import ClosedError, RemoteProtocolError, StreamReset
from gossiplog.net.transport.yamux.frames import GO_AWAY_NORMAL, Flags, FrameKind, encode_header
from gossiplog.net.transport.yamux.machine import (
    FRAMES_A_TURN,
    GROWTH_BYTES,
    OPENED_WINDOW_BYTES,
    QUEUE_BYTES,
    STREAMS_MAX,
    UNREAD_BYTES_MAX,
    WINDOW_BYTES,
    WINDOW_BYTES_MAX,
    Yamux,
)

DATA, WINDOW, PING, GO_AWAY = FrameKind
SYN, ACK, FIN, RST = Flags


def frames(data):
    """Cut what a machine sends into (kind, flags, stream, length), the bodies left out."""
    cut = []
    while data:
        version, kind, flags, stream, length = struct.unpack_from(">BBHII", data)
        assert version == 0
        cut.append((kind, flags, stream, length))
        data = data[12 + (length if kind == DATA else 0) :]
    return cut


def drain(machine):
    data = b""
    while chunk := machine.take():
        data += chunk
    return data


def receive_all(machine, data, now=0.0):
    events = machine.receive(data, now)
    while machine.is_behind:
        events += machine.receive(b"", now)
    return events


def carry(source, target, now=0.0):
    return receive_all(target, drain(source), now)


def opened_pair():
    """Return a client, a server, and their two ends of one stream."""
    client, server = Yamux(is_client=True), Yamux(is_client=False)
    near = client.open(0.0)
    opened, _ = carry(client, server)
    carry(server, client)
    return client, server, near, opened


def body(stream, data, flags=0):
    return encode_header(DATA, flags, stream, len(data)) + data


def test_stream_is_opened_accepted_and_closed_with_frames_of_windows():
    client, server = Yamux(is_client=True), Yamux(is_client=False)
    near = client.open(0.0)
    assert client.write(near, memoryview(b"hello")) == 5
    client.close(near)
    sent = client.take()
    growth = OPENED_WINDOW_BYTES - WINDOW_BYTES
    assert frames(sent) == [(WINDOW, SYN, 1, growth), (DATA, 0, 1, 5), (WINDOW, FIN, 1, 0)]
    opened, *changed = server.receive(sent, 0.0)
    far = opened
    assert far.is_new and changed == 3 * [far]
    assert far.send_window == OPENED_WINDOW_BYTES
    assert server.read(far, 100, 0.0) == b"hello"
    assert far.is_finished_receiving and not far.is_over
    server.write(far, memoryview(b"and back"))
    server.close(far)
    assert frames(server.take()) == [(DATA, ACK, 1, 8), (WINDOW, FIN, 1, 0)]
    assert far.is_over


@pytest.mark.parametrize(("first", "frame"), [(Yamux.close, (WINDOW, FIN | ACK, 1, 0)), (Yamux.reset, (WINDOW, RST, 1, 0))])
def test_stream_on_which_nothing_is_said_is_acknowledged_by_its_end(first, frame):
    client, server = Yamux(is_client=True), Yamux(is_client=False)
    client.open(0.0)
    opened, _ = server.receive(client.take(), 0.0)
    assert server.take() == b""
    first(server, opened)
    assert frames(server.take()) == [frame]


def test_a_lazy_stream_is_announced_by_what_is_said_first_and_grows_when_much_was_read():
    client, server = Yamux(is_client=True), Yamux(is_client=False)
    near = client.open(0.0, is_lazy=True)
    assert client.take() == b""
    client.write(near, memoryview(b"hello"))
    client.write(near, memoryview(b"again"))
    sent = client.take()
    assert frames(sent) == [(DATA, SYN, 1, 5), (DATA, 0, 1, 5)]
    opened, *_ = server.receive(sent, 0.0)
    assert server.read(opened, 100, 0.0) == b"helloagain"
    answer = bytes(WINDOW_BYTES // 2)
    assert server.write(opened, memoryview(answer)) == len(answer)
    carry(server, client)
    assert client.read(near, len(answer) - 1, 0.0) == answer[:-1]
    assert client.take() == b""
    assert client.read(near, 1, 0.0) == answer[:1]
    assert frames(client.take()) == [(WINDOW, 0, 1, len(answer))]


@pytest.mark.parametrize(("first", "sent"), [(Yamux.close, [(WINDOW, SYN | FIN, 1, 0)]), (Yamux.reset, [])])
def test_a_lazy_stream_on_which_nothing_was_said_ends_without_one_that_the_other_side_knows(first, sent):
    client = Yamux(is_client=True)
    first(client, client.open(0.0, is_lazy=True))
    assert frames(client.take()) == sent


def test_servers_ids_are_even_and_both_count_up():
    client, server = Yamux(is_client=True), Yamux(is_client=False)
    assert [client.open(0.0).id for _ in range(3)] == [1, 3, 5]
    assert [server.open(0.0).id for _ in range(3)] == [2, 4, 6]


def test_frames_arrive_alike_however_they_are_cut():
    client = Yamux(is_client=True)
    stream = client.open(0.0)
    for data in (b"", b"a", b"b" * 1000, b"c" * 70_000):
        client.write(stream, memoryview(data))
    client.close(stream)
    client.ping(0.0)
    sent = drain(client)
    for size in (1, 5, 11, 12, 13, 1024):
        server = Yamux(is_client=False)
        events = [event for at in range(0, len(sent), size) for event in server.receive(sent[at : at + size], 0.0)]
        far = events[0]
        assert server.read(far, 100_000, 0.0) == b"a" + b"b" * 1000 + b"c" * 70_000
        assert far.is_finished_receiving
        assert frames(server.take())[-1] == (PING, ACK, 0, 0)


def test_half_close_is_no_reset():
    client, server, near, far = opened_pair()
    client.close(near)
    carry(client, server)
    assert server.write(far, memoryview(b"answer")) == 6
    carry(server, client)
    assert client.read(near, 10, 0.0) == b"answer"
    with pytest.raises(ClosedError):
        client.write(near, memoryview(b"more"))


def test_reset_is_an_error_on_both_sides_once_what_came_before_it_was_read():
    client, server, near, far = opened_pair()
    client.write(near, memoryview(b"unread"))
    server.write(far, memoryview(b"dropped by its reader"))
    carry(server, client)
    carry(client, server)
    client.reset(near)
    assert carry(client, server) == [far] and far.is_reset
    assert server.read(far, 2, 0.0) + server.read(far, 10, 0.0) == b"unread"
    for machine, stream in ((client, near), (server, far)):
        with pytest.raises(StreamReset):
            machine.read(stream, 10, 0.0)
        with pytest.raises(StreamReset):
            machine.write(stream, memoryview(b"x"))
        machine.close(stream)
        machine.reset(stream)
        assert machine.take() == b""


def test_what_came_before_resets_is_held_no_more_than_what_came_without():
    server = Yamux(is_client=False)
    streams = []
    for number in range(1, 4 * STREAMS_MAX, 2):
        events = server.receive(encode_header(WINDOW, SYN, number, 0), 0.0)
        streams += events
        receive_all(server, body(number, bytes(WINDOW_BYTES)) + encode_header(WINDOW, RST, number, 0))
    assert len(streams) == STREAMS_MAX, "the places of streams that were reset are free only once their handlers ended"
    assert sum(len(stream.buffer) for stream in streams) <= UNREAD_BYTES_MAX
    for stream in streams:
        server.release(stream)
    assert sum(len(stream.buffer) for stream in streams) == 0
    events = receive_all(server, encode_header(WINDOW, SYN, 1001, 0) + body(1001, bytes(WINDOW_BYTES)))
    assert not any(event.is_reset for event in events)


def test_writer_stops_at_the_window_of_its_peer_and_goes_on_when_it_was_read():
    client, server, near, far = opened_pair()
    data = memoryview(bytes(WINDOW_BYTES + 1000))
    assert client.write(near, data[: QUEUE_BYTES - 1000]) == QUEUE_BYTES - 1000
    carry(client, server)
    assert client.write(near, data) == 1000
    assert client.write(near, data) == 0
    carry(client, server)
    assert len(far.buffer) == WINDOW_BYTES
    server.read(far, WINDOW_BYTES // 2 - 1, 0.0)
    assert server.take() == b""
    server.read(far, 1, 0.0)
    assert frames(server.take()) == [(WINDOW, ACK, 1, WINDOW_BYTES // 2)]


def test_more_than_the_window_breaks_the_protocol_and_is_not_kept():
    _, server, _, far = opened_pair()
    server.receive(body(1, bytes(WINDOW_BYTES)), 0.0)
    with pytest.raises(RemoteProtocolError, match="which had room for 0"):
        server.receive(body(1, b"x"), 0.0)
    assert len(far.buffer) == WINDOW_BYTES
    assert frames(server.take())[-1] == (GO_AWAY, 0, 0, 1)


def test_a_frame_longer_than_the_window_is_refused_on_its_header():
    _, server, _, far = opened_pair()
    with pytest.raises(RemoteProtocolError):
        server.receive(encode_header(DATA, 0, 1, WINDOW_BYTES + 1), 0.0)
    assert far.buffer == b""


def test_a_frame_that_is_half_there_gives_no_credit_for_its_other_half():
    _, server, _, far = opened_pair()
    server.receive(encode_header(DATA, 0, 1, WINDOW_BYTES) + bytes(1000), 0.0)
    server.read(far, 1000, 0.0)
    assert server.take() == b""
    server.receive(bytes(WINDOW_BYTES - 1000), 0.0)
    server.read(far, WINDOW_BYTES, 0.0)
    assert far.credit == far.window == WINDOW_BYTES


def test_data_waits_with_its_owner_while_the_queue_is_full():
    client = Yamux(is_client=True)
    data = memoryview(bytes(WINDOW_BYTES))
    first, second = client.open(0.0), client.open(0.0)
    queued = client.write(first, data)
    assert queued < QUEUE_BYTES == client.queued_bytes - 5 * 12
    assert client.write(second, data) == 0
    client.take()
    assert client.write(second, data) > 0


def test_what_is_taken_are_whole_frames():
    client = Yamux(is_client=True)
    stream = client.open(0.0)
    client.write(stream, memoryview(bytes(200_000)))
    chunks = []
    while chunk := client.take(50_000):
        chunks.append(frames(chunk))
    assert len(chunks) > 1
    assert sum(length for chunk in chunks for kind, _, _, length in chunk if kind == DATA) == 200_000
    assert client.queued_bytes == 0


def test_the_129th_stream_of_a_peer_is_reset_and_the_others_go_on():
    server = Yamux(is_client=False)
    events = server.receive(b"".join(encode_header(WINDOW, SYN, 2 * n + 1, 0) for n in range(STREAMS_MAX + 1)), 0.0)
    assert len(events) == STREAMS_MAX
    assert frames(server.take())[-1] == (WINDOW, RST, 2 * STREAMS_MAX + 1, 0)
    assert server.receive(body(2 * STREAMS_MAX + 1, b"thrown away") + body(1, b"kept"), 0.0) == [events[0]]


def test_a_place_is_free_once_its_handler_ended_and_the_stream_is_over():
    server = Yamux(is_client=False)
    streams = server.receive(b"".join(encode_header(WINDOW, SYN, 2 * n + 1, 0) for n in range(STREAMS_MAX)), 0.0)
    drain(server)

    def is_accepted(number):
        events = server.receive(encode_header(WINDOW, SYN, number, 0), 0.0)
        assert (not events) == ((WINDOW, RST, number, 0) in frames(drain(server)))
        return bool(events)

    server.receive(encode_header(WINDOW, RST, 1, 0), 0.0)
    assert not is_accepted(1001), "the handler of a stream that was reset may still run"
    server.release(streams[0])
    assert is_accepted(1003)
    server.release(streams[1])
    assert not is_accepted(1005), "the peer has not closed its side"
    server.receive(encode_header(WINDOW, FIN, 3, 0), 0.0)
    assert is_accepted(1007)


def test_we_open_no_more_streams_than_a_peer_would_take():
    client = Yamux(is_client=True)
    streams = [client.open(0.0) for _ in range(STREAMS_MAX)]
    with pytest.raises(StreamReset, match="128"):
        client.open(0.0)
    client.reset(streams[5])
    client.open(0.0)


def test_what_comes_after_the_handler_ended_is_thrown_away_and_then_reset():
    client, server, near, far = opened_pair()
    server.write(far, memoryview(b"last answer"))
    server.release(far)
    carry(server, client)
    client.write(near, memoryview(bytes(1000)))
    assert carry(client, server) == []
    assert far.buffer == b""
    assert server.take() == b"", "a reset would destroy the answer"
    assert client.read(near, 100, 0.0) == b"last answer"
    client.write(near, memoryview(bytes(WINDOW_BYTES)))
    assert carry(client, server) == [far] and far.is_reset
    assert frames(server.take()) == [(WINDOW, RST, 1, 0)]


def test_ping_is_answered_with_its_value_and_measures_the_round_trip():
    client, server = Yamux(is_client=True), Yamux(is_client=False)
    server.receive(encode_header(PING, SYN, 0, 0xDEADBEEF), 0.0)
    assert frames(server.take()) == [(PING, ACK, 0, 0xDEADBEEF)]
    for value in range(3):
        client.ping(10.0)
        client.ping(11.0)
        assert client.ping_sent_at == 10.0
        assert frames(client.take()) == [(PING, SYN, 0, value)]
        client.receive(encode_header(PING, ACK, 0, value + 7), 10.1)
        assert client.ping_sent_at == 10.0
        client.receive(encode_header(PING, ACK, 0, value), 10.25)
        assert client.round_trip_s == 0.25
        assert client.ping_sent_at is None


def test_a_reader_that_keeps_up_gets_larger_windows_up_to_a_maximum():
    client, server, near, far = opened_pair()
    server.ping(0.0)
    carry(server, client)
    carry(client, server, now=0.1)
    total = 0
    windows = [far.window]
    while total < 40 * WINDOW_BYTES_MAX:
        total += client.write(near, memoryview(bytes(WINDOW_BYTES)))
        carry(client, server)
        server.read(far, WINDOW_BYTES, 0.2)
        carry(server, client)
        if far.window != windows[-1]:
            windows.append(far.window)
    assert windows == [WINDOW_BYTES * 2**n for n in range(5)]
    assert windows[-1] == WINDOW_BYTES_MAX


def test_a_slow_reader_keeps_its_window():
    client, server, near, far = opened_pair()
    server.ping(0.0)
    carry(server, client)
    carry(client, server, now=0.1)
    for second in range(1, 100):
        client.write(near, memoryview(bytes(WINDOW_BYTES)))
        carry(client, server)
        server.read(far, WINDOW_BYTES, float(second))
        carry(server, client)
    assert far.window == WINDOW_BYTES


def test_all_windows_together_grow_no_further_than_allowed_and_give_it_back():
    client = Yamux(is_client=True)
    streams = [client.open(0.0) for _ in range(STREAMS_MAX)]
    assert sum(stream.window for stream in streams) == STREAMS_MAX * WINDOW_BYTES + GROWTH_BYTES
    assert streams[-1].window == WINDOW_BYTES
    for stream in streams:
        client.reset(stream)
    assert client.open(0.0).window == OPENED_WINDOW_BYTES


def test_going_away_closes_the_streams_and_ends_the_opening():
    client, server, _, far = opened_pair()
    client.go_away(GO_AWAY_NORMAL)
    client.go_away(GO_AWAY_NORMAL)
    sent = client.take()
    assert frames(sent) == [(WINDOW, FIN, 1, 0), (GO_AWAY, 0, 0, 0)]
    assert server.receive(sent, 0.0) == [far] and server.goodbye == 0
    for machine in (client, server):
        with pytest.raises(StreamReset):
            machine.open(0.0)
    client.receive(encode_header(WINDOW, SYN, 2, 0), 0.0)
    assert frames(client.take()) == [(WINDOW, RST, 2, 0)]


def test_at_the_end_streams_can_be_read_as_far_as_they_have_come():
    client, server, near, far = opened_pair()
    other = client.open(0.0)
    client.write(near, memoryview(b"whole"))
    client.write(other, memoryview(b"half"))
    client.close(near)
    other_far = carry(client, server)[0]
    assert server.end() == [far, other_far]
    assert server.read(far, 10, 0.0) == b"whole"
    for stream in (far, other_far):
        with pytest.raises(StreamReset):
            server.write(stream, memoryview(b"x"))
    assert server.read(other_far, 10, 0.0) == b"half"
    with pytest.raises(StreamReset):
        server.read(other_far, 10, 0.0)
    assert server.streams == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\1" + bytes(11), "version 1"),
        (b"\0\4" + bytes(10), "kind 4"),
        (encode_header(DATA, 0, 0, 5), "for stream 0"),
        (encode_header(PING, SYN, 7, 5), "for stream 7"),
        (encode_header(WINDOW, SYN, 2, 0), "an id of ours"),
        (encode_header(WINDOW, SYN, 1, 0) * 2, "opened twice"),
        (encode_header(DATA, SYN | FIN, 1, 1) + b"x" + body(1, b"y"), "after its end"),
    ],
)
def test_what_is_no_yamux_ends_the_connection_with_a_reason(data, message):
    server = Yamux(is_client=False)
    with pytest.raises(RemoteProtocolError, match=message):
        server.receive(data, 0.0)
    assert frames(server.take())[-1] == (GO_AWAY, 0, 0, 1)


def test_frames_of_streams_that_are_gone_are_passed_over():
    client, server, near, far = opened_pair()
    server.reset(far)
    client.write(near, memoryview(b"x" * 500))
    client.close(near)
    later = client.open(0.0)
    events = carry(client, server)
    assert [stream.id for stream in events] == 2 * [later.id] and events[0].is_new


def test_more_on_a_stream_that_is_gone_than_can_have_been_under_way_breaks_the_protocol():
    _, server, _, far = opened_pair()
    server.receive(body(1, bytes(1000)), 0.0)
    server.reset(far)
    server.receive(encode_header(WINDOW, SYN, 3, 0) + encode_header(WINDOW, RST, 3, 0), 0.0)
    left = 2 * WINDOW_BYTES - 1000
    server.receive(body(1, bytes(left - 10)), 0.0)
    server.receive(body(99, bytes(10)), 0.0)
    with pytest.raises(RemoteProtocolError, match="which is not open"):
        server.receive(body(1, b"x"), 0.0)


@pytest.mark.parametrize("excess", [0, 1])
def test_a_reset_with_data_brings_no_more_than_the_window(excess):
    yamux = Yamux(is_client=False)
    yamux.receive(encode_header(FrameKind.WINDOW, Flags.SYN, 1, 0), 0)
    frame = encode_header(FrameKind.DATA, Flags.RST, 1, WINDOW_BYTES + excess)
    if excess:
        with pytest.raises(RemoteProtocolError, match="which is not open"):
            yamux.receive(frame, 0)
        return
    (ended,) = yamux.receive(frame + bytes(WINDOW_BYTES), 0)
    assert ended.is_reset and not ended.buffer


def test_streams_that_nobody_reads_hold_no_more_together_than_allowed():
    server = Yamux(is_client=False)
    streams = []
    for number in range(1, 2 * STREAMS_MAX, 2):
        streams.append(server.receive(encode_header(WINDOW, SYN, number, 0), 0.0)[0])
        receive_all(server, body(number, bytes(WINDOW_BYTES)))
    held = sum(len(stream.buffer) for stream in streams)
    assert UNREAD_BYTES_MAX - WINDOW_BYTES <= held <= UNREAD_BYTES_MAX
    assert sum(stream.is_reset for stream in streams) == STREAMS_MAX - UNREAD_BYTES_MAX // WINDOW_BYTES
    assert not server.is_leaving
    server.read(streams[0], WINDOW_BYTES, 0.0)
    server.release(streams[1])
    server.receive(encode_header(WINDOW, RST, 3, 0), 0.0)
    events = receive_all(server, body(1, bytes(WINDOW_BYTES)) + encode_header(WINDOW, SYN, 1001, 0) + body(1001, bytes(WINDOW_BYTES)))
    assert not any(event.is_reset for event in events), "what was read or thrown away makes room"


def test_what_is_put_back_is_read_next_and_counts_as_unread():
    server = Yamux(is_client=False)
    streams = []
    for number in range(1, 2 * (UNREAD_BYTES_MAX // WINDOW_BYTES), 2):
        streams.append(server.receive(body(number, b"line" + bytes(WINDOW_BYTES - 4), SYN), 0.0)[0])
        server.put_back(streams[-1], server.read(streams[-1], 4, 0.0))
        assert server.take() == b"", "no credit is given for it"
    opened, *_ = server.receive(body(1001, b"x", SYN), 0.0)
    assert opened.is_reset, "there is room for no more"
    assert server.read(streams[0], 6, 0.0) == b"line\0\0"


def test_stream_may_be_opened_with_data_and_with_its_end():
    server = Yamux(is_client=False)
    opened, *_ = server.receive(body(1, b"all", SYN | FIN), 0.0)
    assert server.read(opened, 10, 0.0) == b"all"
    assert opened.is_finished_receiving


def test_unread_bytes_cost_no_more_than_the_window_even_one_by_one():
    _, server, _, far = opened_pair()
    size = WINDOW_BYTES // 8
    receive_all(server, body(1, b"x") * size)
    assert len(far.buffer) == size
    assert far.buffer.__sizeof__() < 1.2 * size


def test_a_chunk_full_of_headers_is_taken_in_turns():
    server = Yamux(is_client=False)
    pings = [encode_header(PING, SYN, 0, n) for n in range(FRAMES_A_TURN + 10)]
    server.receive(b"".join(pings) + b"\0", 0.0)
    assert server.is_behind
    assert server.queued_bytes == 12 * FRAMES_A_TURN
    server.receive(b"", 0.0)
    assert not server.is_behind
    assert [length for _, _, _, length in frames(server.take())] == list(range(FRAMES_A_TURN + 10))
    server.receive(encode_header(PING, SYN, 0, 7)[1:], 0.0)
    assert frames(server.take()) == [(PING, ACK, 0, 7)]
