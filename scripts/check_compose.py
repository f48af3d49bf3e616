"""The part of check-compose that reads YAML: check_compose.py SCHEMA TIDEGATE, SCHEMA empty where there is none."""

import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = ROOT / "compose"
problems = []


def bad(where, what):
    problems.append(f"compose/{where}: {what}")


class Strict(yaml.SafeLoader):
    """YAML in which a key that is there twice is an error, not the second value."""


def mapping(loader, node):
    seen = set()
    for key, _ in node.value:
        if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
            bad("compose.yaml", f"line {key.start_mark.line + 1}: `{key.value}` is there twice")
        seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def toml(path):
    """The settings, by Python's own parser where it has one (3.11), else the lines this file needs."""
    try:
        import tomllib
    except ImportError:
        section, out = "", {}
        for line in path.read_text().splitlines():
            if m := re.match(r"\[([\w.]+)\]", line):
                section = m.group(1)
                out.setdefault(section, {})
            elif m := re.match(r"(\w+) = (.+)", line):
                out[section][m.group(1)] = json.loads(m.group(2))
        nested = {"pools": {}}
        for name, values in out.items():
            if name.startswith("pools.") and name.count(".") == 1:
                nested["pools"][name[6:]] = values
            else:
                nested[name] = values
        return nested
    return tomllib.loads(path.read_text())


def seconds(text):
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(int(n) * units[u] for n, u in re.findall(r"(\d+)([smh])", str(text)))


def by_schema(document, schema):
    from jsonschema import Draft201909Validator

    # The edition of the schema is of 2021; `name` at the top came right after it.
    document = {key: value for key, value in document.items() if key != "name"}
    for error in Draft201909Validator(json.loads(Path(schema).read_text())).iter_errors(document):
        bad("compose.yaml", f"{'.'.join(map(str, error.path))}: {error.message[:300]}")


def references(document):
    """Everything that is named exists."""
    services = document["services"]
    for name, service in services.items():
        at = f"compose.yaml: {name}"
        for kind in ("networks", "secrets", "configs"):
            for used in service.get(kind, []):
                source = used["source"] if isinstance(used, dict) else used
                if source not in document.get(kind, {}):
                    bad(at, f"{kind[:-1]} `{source}` is not defined")
        for volume in service.get("volumes", []):
            if (source := volume.split(":")[0]) not in document.get("volumes", {}):
                bad(at, f"volume `{source}` is not defined")
        for other, how in service.get("depends_on", {}).items():
            if other not in services:
                bad(at, f"depends on `{other}`, which is no service")
            elif how.get("condition") == "service_healthy" and "healthcheck" not in services[other]:
                bad(at, f"waits for `{other}` to be healthy, which has no healthcheck")
        build = service.get("build")
        if build:
            context = (COMPOSE / build["context"]).resolve()
            dockerfile = context / build["dockerfile"]
            if context != ROOT or not dockerfile.is_file():
                bad(at, f"no {build['dockerfile']} in the build context {build['context']}")
            elif build["target"] not in re.findall(r"^FROM .* AS (\w+)$", dockerfile.read_text(), re.M):
                bad(at, f"the Dockerfile has no target `{build['target']}`")
        elif ":" not in service.get("image", ""):
            bad(at, "an image without a version is another one tomorrow")
    for name, config in document.get("configs", {}).items():
        if not (COMPOSE / config["file"]).is_file():
            bad("compose.yaml", f"config {name}: no file {config['file']}")
    for name, secret in document.get("secrets", {}).items():
        ignored = subprocess.run(["git", "check-ignore", "-q", f"compose/{secret['file']}"], cwd=ROOT)
        if ignored.returncode == 1:
            bad("compose.yaml", f"secret {name}: git would take {secret['file']} in")
        if f"compose/{secret['file'].removeprefix('./')}".rsplit("/", 1)[0] not in (ROOT / "scripts/compose-secrets").read_text():
            bad("compose.yaml", f"secret {name}: scripts/compose-secrets does not make {secret['file']}")


def dockerfile():
    """What the Dockerfile copies exists and is not kept out of the context; what a healthcheck runs is in the image."""
    text = (COMPOSE / "Dockerfile").read_text()
    lines = [l.strip() for l in (ROOT / ".dockerignore").read_text().splitlines() if l.strip() and l[0] != "#"]

    def sent(path):
        out = False
        for line in lines:
            if line.startswith("!"):
                out = out and not (path == line[1:] or path.startswith(line[1:] + "/"))
            else:
                out = out or fnmatch.fnmatch(path.split("/")[0], line) or fnmatch.fnmatch(path, line)
        return not out

    for flags, sources in re.findall(r"^COPY((?: --\S+)*) (.+) \S+$", text, re.M):
        if "--from" not in flags:
            for source in sources.split():
                if not (ROOT / source).exists():
                    bad("Dockerfile", f"copies {source}, which is not there")
                elif source != "." and not sent(source):
                    bad("Dockerfile", f"copies {source}, which .dockerignore keeps out")
    members = re.search(r"^members = (\[.*\])", (ROOT / "Cargo.toml").read_text(), re.M).group(1)
    for needed in [*json.loads(members), "lua", "Cargo.toml", "Cargo.lock"]:
        if not sent(needed):
            bad("../.dockerignore", f"keeps out {needed}, without which cargo cannot build")


def roles(document, settings):
    """The services that were asked for, each watched, none with what would keep it from being scaled or stopped well."""
    services = document["services"]

    def role(command):
        return {n: s for n, s in services.items() if s.get("command", [None])[0] == command}

    def count(found):
        return sum(s.get("deploy", {}).get("replicas", 1) for s in found.values())

    for command, least in (("ingress", 2), ("reaper", 2), ("gpu", 1)):
        if count(role(command)) < least:
            bad("compose.yaml", f"{count(role(command))} of `{command}`, at least {least} are wanted")
    served = {}
    for name, service in role("worker").items():
        for pool in service["environment"].get("TIDEGATE_WORKER__POOLS", "").split(","):
            served[pool] = name
        if "container_name" in service or "ports" in service:
            bad(f"compose.yaml: {name}", "a name or a published port keeps it from being scaled")
    if set(served) != set(settings["pools"]):
        bad("compose.yaml", f"workers serve {sorted(served)}, tidegate.toml has {sorted(settings['pools'])}")
    for name, service in services.items():
        at = f"compose.yaml: {name}"
        if "test" not in service.get("healthcheck", {}):
            bad(at, "no healthcheck")
        for port in service.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                bad(at, f"port {port} is open to the network; publish it on 127.0.0.1")
        environment = service.get("environment", {})
        for key, value in environment.items():
            if re.search(r"PASSWORD|SECRET|KEY", key) and not (key.endswith("_FILE") and value.startswith("/run/secrets/")):
                bad(at, f"{key}: a secret comes from a file under /run/secrets")
        grace = environment.get("TIDEGATE_TERMINATION_GRACE_MS")
        if service.get("command", [None])[0] in ("ingress", "worker", "reaper"):
            if grace is None or int(grace) != 1000 * seconds(service.get("stop_grace_period", "10s")):
                bad(at, f"stop_grace_period and TIDEGATE_TERMINATION_GRACE_MS ({grace}) differ")
            check = service["healthcheck"]["test"]
            listen = settings[service["command"][0]]["listen"]
            if check[2] != listen.rsplit(":", 1)[1]:
                bad(at, f"the healthcheck asks port {check[2]}, the role listens on {listen}")
    addresses = [settings["store"]["url"]] + [b for p in settings["pools"].values() for b in p["backends"]]
    for address in addresses:
        if urlsplit(address).hostname not in services:
            bad("tidegate.toml", f"{address} is no service of compose.yaml")


def settings_by_tidegate(document, tidegate):
    """Every role's settings, environment included, as the binary judges them."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder, "secret")
        secret.write_text("checked\n")
        for name, service in document["services"].items():
            if service.get("image") != "tidegate:local":
                continue
            given = {k: str(secret) if str(v).startswith("/run/secrets/") else str(v) for k, v in service["environment"].items()}
            clean = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
            for command in (
                ["config", "check", "--config", str(COMPOSE / "tidegate.toml")],
                [service["command"][0], "--help"],
            ):
                ran = subprocess.run([tidegate, *command], env=clean | given, capture_output=True, text=True)
                if ran.returncode:
                    bad(f"compose.yaml: {name}", f"tidegate {command[0]}: {ran.stderr.strip() or ran.stdout.strip()}")


def redis_by_redis(document):
    """The very command of the service, with the paths of this machine, answers to the password and to it alone."""
    service = document["services"]["redis"]
    with tempfile.TemporaryDirectory() as folder:
        password, conf, socket = (Path(folder, n) for n in ("password", "redis.conf", "s"))
        password.write_text("checked-here\n")
        text = (COMPOSE / "redis.conf").read_text()
        conf.write_text(re.sub(r"(?m)^dir .*$", f"dir {folder}", text) + f"\nport 0\nunixsocket {socket}\n")
        command = [
            part.replace("$$", "$").replace("/run/secrets/redis_password", str(password)).replace("/etc/redis.conf", str(conf))
            for part in service["command"]
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:

            def ask(*words, secret=None):
                env = dict(os.environ) | ({"REDISCLI_AUTH": secret} if secret else {})
                ran = subprocess.run(["redis-cli", "-s", str(socket), *words], env=env, capture_output=True, text=True)
                return ran.stdout.strip()

            until = time.monotonic() + 20
            while not socket.exists() and server.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            if ask("ping", secret="checked-here") != "PONG":
                server.terminate()
                bad("compose.yaml: redis", f"does not start: {server.communicate()[0].decode()[-500:]}")
                return
            if not ask("ping").startswith("NOAUTH"):
                bad("compose.yaml: redis", "answers without the password")
            # As the healthcheck asks, but for the address.
            for key, wanted in (("appendonly", "yes"), ("appendfsync", "always"), ("maxmemory-policy", "noeviction")):
                if (got := ask("config", "get", key, secret="checked-here").splitlines()[-1]) != wanted:
                    bad("redis.conf", f"{key} is {got}, not {wanted}")
            shown = Path(f"/proc/{server.pid}/cmdline")
            if shown.exists() and b"redis-server" not in shown.read_bytes():
                bad("compose.yaml: redis", "a shell stays in front of redis-server, and SIGTERM would not reach it")
            if shown.exists() and b"checked-here" in shown.read_bytes():
                bad("compose.yaml: redis", "shows the password to everyone who lists processes")
        finally:
            server.terminate()
            server.wait(20)


def main():
    schema, tidegate = sys.argv[1:]
    document = yaml.load((COMPOSE / "compose.yaml").read_text(), Strict)
    settings = toml(COMPOSE / "tidegate.toml")
    if schema:
        by_schema(document, schema)
    references(document)
    dockerfile()
    roles(document, settings)
    redis_by_redis(document)
    settings_by_tidegate(document, tidegate)
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    how = "by schema, " if schema else ""
    print(f"compose ok: {len(document['services'])} services, {how}by reference and by the programs in it")
    return 0


sys.exit(main())
