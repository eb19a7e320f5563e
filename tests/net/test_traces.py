"""Spans of a real server: it runs under OpenTelemetry's own command, and sends them by OTLP to a collector that is a thread here."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from network_support import TOPIC, memory_log, until_count
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import gossiplog
from gossiplog.cli.posting import Poster
from gossiplog.entry import Ed25519Signer
from gossiplog.entry.rules import VALUE_BYTES_LIMIT
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import exchange

REPOSITORY = Path(__file__).parents[2]
WAIT_S = 60
SECRET = "what is in a payload or a token"


class Collector(http.server.ThreadingHTTPServer):
    """Takes what is exported to `/v1/traces`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Handler)

    def spans(self) -> list[Any]:
        """All spans that came, as protobuf has them."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [span for request in requests for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


@contextmanager
def traced_server(collector: Collector, path: Path, *options: str) -> Iterator[str]:
    """`opentelemetry-instrument gossiplog serve …`; gives its URL. It sends what is left when it ends."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "OTEL_SERVICE_NAME": "hub",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
    }
    instrument = str(Path(sys.executable).with_name("opentelemetry-instrument"))
    command = [instrument, sys.executable, "-m", "gossiplog", "serve", str(path), "--listen", "127.0.0.1:0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["urls"][0]
            process.terminate()
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_server_tells_a_collector_what_it_received_and_synced(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with gossiplog.open(path, topic=TOPIC):
        pass
    with collecting() as collector:

        def serve_and_post() -> None:
            with traced_server(collector, path) as url:
                Poster(url, Ed25519Signer.generate(), None, VALUE_BYTES_LIMIT).append(SECRET)
                trio.run(bring, f"{url}/?token={SECRET.replace(' ', '-')}")

        await trio.to_thread.run_sync(serve_and_post)
    spans = collector.spans()
    received = [attributes(span) for span in spans if span.name == f"receive {TOPIC}"]
    assert sum(each["gossiplog.new"] for each in received) == 22
    assert {each["messaging.system"] for each in received} == {"gossiplog"}
    assert {each["messaging.operation.type"] for each in received} == {"process"}
    synced = [attributes(span) for span in spans if span.name == f"sync {TOPIC}"]
    assert {each["messaging.destination.name"] for each in synced} == {TOPIC}
    for body in collector.bodies:
        assert SECRET.encode() not in body
        assert SECRET.replace(" ", "-").encode() not in body


async def bring(url: str) -> None:
    """Have a client connected until the hub has fetched what it has, over a connection that the hub asks on."""
    async with memory_log(2) as client:
        await client.append_many([SECRET] * 20)
        async with client.connect(url):
            await until_count(client, 21)
            await client.append(SECRET)
            # The client stays until then: what it cuts off is a span that does not say how many were new.
            assert (await exchange(client, parse_url(url))).is_equal


@pytest.mark.parametrize("fails", [False, True])
async def test_append_is_a_span_that_names_the_type_of_what_failed_and_no_more(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)

    def refuse(message: object, did: str) -> bool:
        return not fails

    async with memory_log(1, authorize=refuse) as log:
        with trace.use_span(provider.get_tracer("application").start_span("of the application"), end_on_exit=True):
            try:
                await log.append(SECRET)
            except gossiplog.errors.NotAuthorised:
                assert fails
            else:
                assert not fails
    append, application = exporter.get_finished_spans()
    assert (append.name, append.kind, append.parent) == (f"append {TOPIC}", trace.SpanKind.PRODUCER, application.context)
    assert append.attributes is not None
    assert append.attributes["messaging.batch.message_count"] == 1
    assert append.attributes.get("error.type") == ("NotAuthorised" if fails else None)
    assert (append.status.status_code is trace.StatusCode.ERROR) == fails
    assert (append.events, append.status.description) == ((), None)
    assert SECRET not in append.to_json()


def test_package_imports_nothing_of_opentelemetry() -> None:
    code = (
        "import sys, gossiplog.net.hub.server, gossiplog.web, gossiplog.cli.app\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[]\n"
