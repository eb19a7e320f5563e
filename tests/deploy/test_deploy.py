"""What `deploy/` holds works: each file is used by its own tool where that can be installed, and read otherwise."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
from network_support import PATIENCE_S, eventually, fetch, make_certificate, memory_log, until_has
from ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Mount

from gossiplog.cli.configured import PREFIX, configurable
from gossiplog.cli.net.serve import serve
from gossiplog.log.writing import WAITING_MAX
from gossiplog.net.ground.access import Access
from gossiplog.net.ground.admission import HubLimits
from gossiplog.web.app import log_app
from gossiplog.web.glass import GlassSettings
from gossiplog.web.http.doors import Door

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = ROOT / "docs" / "operations.md"
Proxy: TypeAlias = Callable[[Path, int], AbstractContextManager[tuple[int, Path]]]
LABELS_ONLY = {"up"}
"""What Prometheus itself adds."""


def names_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return set(re.findall(r"\b(?:gossiplog_[a-z_]+|process_[a-z_]+|up)\b(?=[{\[ )]|$)", expression)) - LABELS_ONLY


async def metrics() -> set[str]:
    """The names of all samples that a server can have, the parts of histograms among them."""
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        families = list(text_string_to_metric_families((await fetch(hub, "/metrics")).body.decode()))
    names = {family.name for family in families} | {sample.name for family in families for sample in family.samples}
    return names | {f"{family.name}_total" for family in families if family.type == "counter"}


def alerts() -> dict[str, str]:
    text = (DEPLOY / "alerts.yml").read_text()
    return dict(re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", text))


async def test_every_metric_that_the_dashboard_and_the_alerts_name_exists() -> None:
    board = json.loads((DEPLOY / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]] + list(alerts().values())
    known = await metrics()
    assert len(expressions) > 30
    for expression in expressions:
        assert names_in(expression) <= known, expression
        assert names_in(expression) or re.search(r"\bup\{|\bprobe_ssl_", expression), expression
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_alert_has_a_paragraph_that_says_what_to_do() -> None:
    guide = GUIDE.read_text()
    assert len(alerts()) == (DEPLOY / "alerts.yml").read_text().count("- alert:") > 8
    for name in alerts():
        (paragraph,) = re.findall(rf"^### {name}\n\n(.+(?:\n.+)*)", guide, re.MULTILINE)
        assert len(paragraph) > 150, name
    assert re.findall(r"^### (Gossiplog\w+)$", guide, re.MULTILINE) == list(alerts())


def test_every_alert_has_a_description_and_a_runbook_that_is_its_section() -> None:
    text = (DEPLOY / "alerts.yml").read_text()
    rules = re.findall(r"- alert: (\w+)\n(?:(?!- alert).*\n)*?\s+description: \"(.+)\"\n\s+runbook_url: (\S+)\n", text)
    assert [name for name, *_ in rules] == list(alerts())
    for name, description, runbook in rules:
        assert len(description) > 60 and runbook == f"https://docs.example.com/operations/#{name.lower()}"


def test_files_of_the_server_say_what_serve_understands() -> None:
    table = tomllib.loads((DEPLOY / "serve.toml").read_text())
    assert set(table) <= set(configurable(serve))
    serve.make_context("serve", ["--config", str(DEPLOY / "serve.toml")])
    Access.load(DEPLOY / "access.toml")
    known = {PREFIX + name.upper().replace("-", "_") for name in configurable(serve)}
    for file in ("Dockerfile", "compose.yaml", "gossiplog.service"):
        named = set(re.findall(r"\bGOSSIPLOG_[A-Z_]+", (DEPLOY / file).read_text()))
        assert named, file
        assert named <= known, file


@pytest.mark.slow
def test_hadolint_finds_nothing_wrong_with_the_dockerfile() -> None:
    done = subprocess.run([tool("hadolint"), DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_dockerfile_is_small_and_runs_as_nobody() -> None:
    """Docker cannot be installed here; so what building it would show first is asked here."""
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    words = {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {line.split()[0] for line in lines} <= words
    stages = [line for line in lines if line.startswith("FROM")]
    assert len(stages) == 2
    assert all(re.fullmatch(r"FROM python:[\d.]+-slim( AS \w+)?", stage) for stage in stages)
    last = lines[lines.index(stages[-1]) :]
    assert re.fullmatch(r"USER [1-9]\d*", next(line for line in reversed(last) if line.startswith("USER")))
    assert not any(line.startswith("ADD") or "sudo" in line or "latest" in line for line in lines)
    assert "--no-cache-dir" in text
    for line in last:
        if line.startswith(("CMD", "ENTRYPOINT")):
            assert isinstance(json.loads(line.partition(" ")[2]), list)


@pytest.mark.slow
def test_compose_is_what_its_specification_says() -> None:
    """Docker's own `config` cannot be had here; this is another parser of the specification, which refuses what that does not know."""
    from compose_spec import PyCompose

    text = (DEPLOY / "compose.yaml").read_text()
    PyCompose.from_yaml(text).validate()
    for old, new in [("depends_on", "depend_on"), ("interval: 5s", "interval: soon"), ("front: {ipv4", "back: {ipv4")]:
        assert old in text
        with pytest.raises(ValueError, match=new.partition(":")[0]):
            PyCompose.from_yaml(text.replace(old, new)).validate()


def test_compose_names_services_volumes_and_files_that_are_there() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    services = set(re.findall(r"^  (\w+):$", text.partition("services:\n")[2].partition("\nnetworks:")[0], re.MULTILINE))
    assert services == {"postgres", "init", "gossiplog", "caddy"}
    for needed in re.findall(r"depends_on: \{(\w+):", text):
        assert needed in services
    for file in re.findall(r'"\./([\w.]+):', text):
        assert (DEPLOY / file).exists(), file
    for volume in re.findall(r'"(\w+):/(?!/)', text):
        assert re.search(rf"^volumes: .*\b{volume}\b", text, re.MULTILINE), volume


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.fail(f"{name} is missing: .ci/run installs it")
    return found


@pytest.mark.slow
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    done = subprocess.run([tool("promtool"), "check", "rules", DEPLOY / "alerts.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 rules found" in done.stdout


@pytest.mark.slow
def test_unit_is_hardened() -> None:
    command = [tool("systemd-analyze"), "security", "--offline=true", str(DEPLOY / "gossiplog.service")]
    said = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "SYSTEMD_COLORS": "0"}).stdout
    (level,) = re.findall(r"Overall exposure level for gossiplog.service: ([\d.]+)", said)
    assert float(level) <= 3.0
    # Without /proc/stat prometheus_client has no figures of the process, and GossiplogSocketsRunOut no expression that is ever true.
    assert "ProcSubset" not in (DEPLOY / "gossiplog.service").read_text()


@pytest.mark.slow
def test_backlog_of_commits_is_told_of_before_the_queue_is_full(tmp_path: Path) -> None:
    """The writer's queue takes so much and no more; what waits to be verified is bounded by peer."""
    series = f"""{{series: 'gossiplog_queue_length{{queue="commit",topic="a"}}', values: "{WAITING_MAX - 1}x15"}}"""
    expected = """{eval_time: 10m, alertname: GossiplogBacklog, exp_alerts: [{exp_labels: {severity: ticket, queue: commit, topic: a},"""
    expected += """ exp_annotations: {summary: "entries of a come faster than they are stored (commit)","""
    expected += (
        f""" description: "{(WAITING_MAX - 1) / 1000}k wait in the queue commit. See which clients bring them with gossiplog peers.","""
    )
    expected += """ runbook_url: "https://docs.example.com/operations/#gossiplogbacklog"}}]}"""
    (tmp_path / "test.yml").write_text(
        f"rule_files: [{DEPLOY}/alerts.yml]\ntests:\n  - interval: 1m\n    input_series: [{series}]\n    alert_rule_test: [{expected}]\n"
    )
    done = subprocess.run([tool("promtool"), "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_rules_for_what_is_set_aside_quarantined_and_about_to_end_fire(tmp_path: Path) -> None:
    aside = """gossiplog_set_aside_total{topic="a",application="app",error="%s"}"""
    ends = """probe_ssl_earliest_cert_expiry{job="gossiplog-tls",instance="%s"}"""
    series = {
        aside % "ValueError": "0x10 1x50",
        aside % "Reject": "0x10 9x50",
        'gossiplog_quarantined_entries{topic="a"}': "2x60",
        'gossiplog_quarantined_entries{topic="b"}': "0x60",
        ends % "soon": f"{13 * 86_400}x60",
        ends % "later": f"{15 * 86_400}x60",
    }
    fired = {
        "GossiplogSetAside": ["{topic: a, application: app, error: ValueError, severity: ticket}"],
        "GossiplogQuarantine": ["{topic: a, severity: ticket}"],
        "GossiplogCertificateEnds": ["{job: gossiplog-tls, instance: soon, severity: ticket}"],
    }
    lines = [f"rule_files: [{DEPLOY}/alerts.yml]", "tests:", "  - interval: 1m", "    input_series:"]
    lines += [f"      - {{series: '{name}', values: '{values}'}}" for name, values in series.items()]
    lines += ["    promql_expr_test:"]
    for name, labels in fired.items():
        shown = ", ".join(f'{each.partition(": ")[0]}="{each.partition(": ")[2]}"' for each in labels[0][1:-1].split(", "))
        sample = f'{{labels: \'ALERTS{{alertname="{name}", alertstate="firing", {shown}}}\', value: 1}}'
        lines += [f'      - {{expr: \'ALERTS{{alertname="{name}",alertstate="firing"}}\', eval_time: 30m, exp_samples: [{sample}]}}']
    (tmp_path / "test.yml").write_text("\n".join(lines) + "\n")
    done = subprocess.run([tool("promtool"), "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def running(command: list[Any], log: Path, **options: Any) -> Iterator[None]:
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, **options)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def curl(port: int, authority: Path, path: str) -> tuple[int, str]:
    """Ask a proxy, which may still be starting."""
    command = ["curl", "-sS", "--cacert", str(authority), "--max-time", "20", "-w", "\n%{http_code}", f"https://localhost:{port}{path}"]
    command += ["-H", "Authorization: Bearer secretsecret", "-H", "Sec-WebSocket-Protocol: bearer.secretsecret"]
    with trio.fail_after(PATIENCE_S):
        while True:
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
            if done.returncode not in (7, 35):
                break
            await trio.sleep(0.05)
    body, _, status = done.stdout.decode().rpartition("\n")
    assert done.returncode == 0, done.stderr
    return int(status), body


async def through(port: int, scheme_port_hub: Any, authority: Path) -> None:
    """Read, follow and write through a proxy with TLS."""
    hub, log, client = scheme_port_hub
    assert await curl(port, authority, "/readyz") == (200, "ready\n")
    for path in ("/metrics", "/api/connections", "/api/glass/nodes", "/api/glass/links"):
        assert (await curl(port, authority, path))[0] == 404
    assert (await curl(port, authority, "/api/clock?token=secretsecret"))[0] == 200
    import ssl

    async with client.connect(f"wss://localhost:{port}/?token=secretsecret", tls=ssl.create_default_context(cafile=str(authority))) as link:
        with trio.fail_after(PATIENCE_S):
            await link.wait_connected()
        await until_has(log, [await client.append("through the proxy")])
        await eventually(lambda: any(peer.kind == "client" for peer in hub.links()))


@contextmanager
def nginx(folder: Path, hub_port: int) -> Iterator[tuple[int, Path]]:
    """Run nginx as its snippet says, in front of a port; yields its own port and its certificate."""
    cert, key = make_certificate(folder)
    port = free_port()
    text = (DEPLOY / "nginx.conf").read_text()
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("hub.example.com;", "localhost;"),
        ("127.0.0.1:8080", f"127.0.0.1:{hub_port}"),
        ("/etc/letsencrypt/live/hub.example.com/fullchain.pem", str(cert)),
        ("/etc/letsencrypt/live/hub.example.com/privkey.pem", str(key)),
        ("/var/log/nginx/gossiplog.log", f"{folder}/access.log"),
        ("/var/log/nginx/gossiplog.error.log", f"{folder}/gossiplog.error.log"),
    ):
        assert old in text
        text = text.replace(old, new)
    paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = folder / "nginx.conf"
    config.write_text(f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http {{ {paths} {text} }}")
    with running([tool("nginx"), "-c", config, "-e", folder / "error.log"], folder / "out"):
        yield port, cert


@contextmanager
def caddy(folder: Path, hub_port: int) -> Iterator[tuple[int, Path]]:
    """The same of Caddy."""
    cert, key = make_certificate(folder)
    port = free_port()
    text = (DEPLOY / "Caddyfile").read_text()
    # A certificate of ours instead of one from the Internet; the rest as it is.
    for old, new in (
        ("{$HOST:hub.example.com} {", f"https://localhost:{port} {{\n\ttls {cert} {key}"),
        ("{\n", "{\n\tadmin off\n\tauto_https off\n\tskip_install_trust\n"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    config = folder / "Caddyfile"
    config.write_text(text)
    environment = {**os.environ, "GOSSIPLOG": f"127.0.0.1:{hub_port}", "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with running([tool("caddy"), "run", "--config", config, "--adapter", "caddyfile"], folder / "access.log", env=environment):
        yield port, cert


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [nginx, caddy])
async def test_proxy_serves_as_its_file_says(tmp_path: Path, proxy: Proxy) -> None:
    limits = HubLimits(proxies=frozenset({"127.0.0.1"}), hosts=frozenset({"localhost"}))
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=limits) as hub:
        with proxy(tmp_path, hub.port) as (port, cert):
            await through(port, (hub, log, client), cert)
    said = (tmp_path / "access.log").read_text()
    assert "secretsecret" not in said
    assert "/api/clock" in said


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [nginx, caddy])
async def test_proxy_logs_no_token_when_nobody_answers_it(tmp_path: Path, proxy: Proxy) -> None:
    with proxy(tmp_path, free_port()) as (port, cert):
        assert (await curl(port, cert, "/api/clock?token=secretsecret"))[0] == 502
    said = {file.name: file.read_text() for file in tmp_path.glob("*.log")}
    assert "/api/clock" in said["access.log"]
    assert not [name for name, text in said.items() if "secretsecret" in text]


async def test_proxies_keep_inside_what_takes_the_right_to_watch() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        served = log_app(hub.services[log.topic], hub, GlassSettings(has_page=True))
        mounts = [route for route in served.routes if isinstance(route, Mount)]
        doors = [(mount.path, route) for mount in mounts for route in mount.routes]
        assert all(isinstance(route, Door) for _, route in doors), "a route below a log's API that takes no right"
        rights = {f"{path}{route.path}": route.rights for path, route in doors if isinstance(route, Door)}
    paths = list(rights)
    watched = [path for path in paths if rights[path].get("GET") == "watch"]
    assert {path for path in paths if None in rights[path].values()} == {
        f"{mount}/{name}" for mount in ("/api", f"/{log.topic}/api") for name in ("challenge", "token")
    }
    assert len(watched) > 12
    for name in ("nginx.conf", "Caddyfile"):
        (inside,) = re.findall(r"/api/\(.+?\)\$", (DEPLOY / name).read_text())
        assert [path for path in paths if re.search(inside, path)] == watched


@pytest.mark.slow
def test_stranger_gets_to_a_hub_with_tls_and_tokens(tmp_path: Path) -> None:
    """The commands of the guide as they stand there, but for the port."""
    section = GUIDE.read_text().partition("## A hub with TLS and tokens\n")[2]
    script = section.partition("```sh\n")[2].partition("```")[0]
    commands = script.strip().splitlines()
    assert len(commands) <= 10
    assert all(re.match(r"gossiplog |openssl |curl |printf ", line) for line in commands)
    script = script.replace("8443", str(free_port()))
    ended = "trap 'kill %1 && wait' EXIT\n"
    environment = {**os.environ, "GOSSIPLOG_KEY_DIR": str(tmp_path / "keys"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ended + script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False, process_group=0,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ready" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["pushed"] == 1
