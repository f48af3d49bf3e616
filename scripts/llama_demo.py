"""The running part of llama-demo: llama_demo.py FOLDER TIDEGATE; FOLDER holds llama-server and model.gguf."""

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

MODEL = "smollm2-135m"
# A model of this size is ready in a few seconds, on a busy machine in some more.
READY_S = 120
# One job: a few hundred output tokens even where two cores are shared with a build.
JOB_S = 180

# Proxies are for other machines than this one.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Failed(Exception):
    """Something did not come, or is not what the server counted."""


def get(url, key=None, body=None, headers=None, timeout=JOB_S):
    """The open answer; an HTTP error is shown with its body."""
    headers = dict(headers or {})
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    try:
        return opener.open(urllib.request.Request(url, data, headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        raise Failed(f"{url} answers {error.code}: {error.read(2000).decode(errors='replace')}") from error


def get_json(*args, **named):
    with get(*args, **named) as answer:
        return json.load(answer)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_llama(folder, log):
    """llama.cpp's server, once it is ready, and its address. The port may be taken in between: then another one."""
    for _ in range(3):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        # One thread: two collapse as soon as anything else runs. `--embeddings` with a pooling serves embeddings
        # beside chat.
        child = subprocess.Popen(
            [folder / "llama-server", "--model", folder / "model.gguf", "--alias", MODEL, "--host", "127.0.0.1",
             "--port", str(port), "-c", "8192", "-np", "4", "-t", "1", "--no-webui", "--metrics", "--jinja",
             "--offline", "--embeddings", "--pooling", "mean"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )
        until = time.monotonic() + READY_S
        while child.poll() is None and time.monotonic() < until:
            try:
                with opener.open(f"{url}/health", timeout=2):
                    return child, url
            except OSError:
                time.sleep(0.1)
        stop(child)
    log.seek(0)
    raise Failed(f"llama-server did not get ready: {log.read()[-1000:].decode(errors='replace')}")


def stop(child):
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(50)
        except subprocess.TimeoutExpired:
            child.kill()
    child.wait()


def counted(llama):
    """Output tokens that the server says it has written."""
    with get(f"{llama}/metrics") as answer:
        found = re.search(rb"^llamacpp:tokens_predicted_total (\d+)", answer.read(), re.M)
    if not found:
        raise Failed("llama-server shows no tokens_predicted_total")
    return int(found.group(1))


def counted_since(llama, before, usage):
    """The server counts a moment after its last byte; wait for it, then its figure and the job's must be one."""
    until = time.monotonic() + 10
    while (written := counted(llama) - before) < usage["output_tokens"] and time.monotonic() < until:
        time.sleep(0.05)
    if written != usage["output_tokens"] or usage["output_tokens"] < 1 or usage["input_tokens"] < 1:
        raise Failed(f"llama.cpp counts {written} output tokens, the job says {usage}")
    if usage["estimated"]:
        raise Failed(f"the usage is an estimate, not the server's: {usage}")
    return written


def submit(api, key, body, endpoint):
    return get_json(f"{api}/v1/jobs", key, {"model": MODEL, "endpoint": endpoint, "body": body})["id"]


def finished(api, key, job_id):
    """The job once it is over, and its result."""
    until = time.monotonic() + JOB_S
    while time.monotonic() < until:
        job = get_json(f"{api}/v1/jobs/{job_id}?wait=30", key)
        if job["status"] == "succeeded":
            return job, get_json(f"{api}/v1/jobs/{job_id}/result", key)
        if job["status"] in ("failed", "cancelled", "expired"):
            raise Failed(f"{job_id} {job['status']}: {job['error']}")
    raise Failed(f"{job_id} did not end within {JOB_S} s")


def events(api, key, job_id):
    """(event, data) of a job's stream until its terminal."""
    with get(f"{api}/v1/jobs/{job_id}/events", key, headers={"Accept": "text/event-stream"}) as answer:
        kind, data = "message", []
        for line in answer:
            line = line.decode().rstrip("\r\n")
            if line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                yield kind, "\n".join(data)
                if kind == "terminal":
                    return
                kind, data = "message", []
    raise Failed(f"the events of {job_id} ended before its terminal")


def demo(tidegate, llama):
    """The demo itself, its output behind a pipe: there it ends when the answer is printed."""
    print(f"\n== tidegate dev --demo --upstream {llama}\n", flush=True)
    before = counted(llama)
    child = subprocess.Popen(
        [tidegate, "dev", "--demo", "--port", "0", "--upstream", llama], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        for line in child.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        if child.wait() != 0:
            raise Failed(f"the demo ended with {child.returncode}")
    finally:
        stop(child)
    if counted(llama) == before:
        raise Failed("the demo ended well, but llama.cpp wrote nothing")


def streamed(api, key, llama):
    print("\n== a chat job, followed on /events as it streams\n", flush=True)
    before = counted(llama)
    body = {"messages": [{"role": "user", "content": "Name three things the tide moves."}], "max_tokens": 96}
    job_id = submit(api, key, body, "/v1/chat/completions")
    text, pieces = "", 0
    for kind, data in events(api, key, job_id):
        if kind != "chunk" or data == "[DONE]":
            continue
        pieces += 1
        for choice in json.loads(data).get("choices", []):
            piece = choice["delta"].get("content") or ""
            text += piece
            print(piece, end="", flush=True)
    job, result = finished(api, key, job_id)
    if pieces < 2 or not text.strip():
        raise Failed(f"{pieces} chunks came, with {text!r}")
    if result["choices"][0]["message"]["content"] != text:
        raise Failed(f"what streamed, {text!r}, is not the result {result}")
    written = counted_since(llama, before, job["usage"])
    print(f"\n\n{pieces} chunks; usage {json.dumps(job['usage'])}; llama.cpp counts {written} output tokens")


def vectors_of(result):
    return [entry["embedding"] for entry in sorted(result["data"], key=lambda entry: entry["index"])]


def embedded(api, key, llama):
    print("\n== an embeddings job\n", flush=True)
    texts = ["the tide comes in", "the sea rises", "a compiler in Rust"]
    job_id = submit(api, key, {"input": texts}, "/v1/embeddings")
    job, result = finished(api, key, job_id)
    vectors = vectors_of(result)
    if len(vectors) != len(texts) or any(len(vector) != len(vectors[0]) or not any(vector) for vector in vectors):
        raise Failed(f"{len(vectors)} vectors for {len(texts)} texts")
    # Asked the same directly, the server has to say the same.
    direct = vectors_of(get_json(f"{llama}/v1/embeddings", body={"model": MODEL, "input": texts}))
    for ours, its in zip(vectors, direct):
        near = sum(a * b for a, b in zip(ours, its))
        length = (sum(a * a for a in ours) * sum(b * b for b in its)) ** 0.5
        if near < 0.999 * length:
            raise Failed(f"the vectors are not the server's: cosine {near / length}")
    usage = job["usage"]
    if usage["input_tokens"] != result["usage"]["prompt_tokens"] or usage["input_tokens"] < len(texts) or usage["estimated"]:
        raise Failed(f"the job's usage {usage} is not the server's {result['usage']}")
    first = ", ".join(f"{value:.4f}" for value in vectors[0][:4])
    print(f"{len(vectors)} vectors of {len(vectors[0])} numbers, the first [{first}, ...]; usage {json.dumps(usage)}")


def served(tidegate, llama):
    """Everything in one process, for the jobs after the demo's."""
    child = subprocess.Popen(
        [tidegate, "dev", "--headless", "--port", "0", "--upstream", llama],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )
    found = {}
    watch = threading.Timer(READY_S, child.kill)
    watch.start()
    try:
        for line in child.stdout:
            if match := re.match(r"(listening on|api key)\s+(\S+)", line):
                found[match.group(1)] = match.group(2)
            if len(found) == 2:
                # What else it prints must not fill the pipe.
                threading.Thread(target=child.stdout.read, daemon=True).start()
                return child, found["listening on"], found["api key"]
        raise Failed(f"tidegate dev ended with {child.wait()} before it listened")
    except BaseException:
        stop(child)
        raise
    finally:
        watch.cancel()


def main():
    # A stop from outside takes the children along, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder, tidegate = (Path(path).resolve() for path in sys.argv[1:])
    children = []
    with tempfile.TemporaryFile() as log:
        try:
            child, llama = start_llama(folder, log)
            children.append(child)
            print(f"llama.cpp serves {MODEL} on {llama}")
            demo(tidegate, llama)
            child, api, key = served(tidegate, llama)
            children.append(child)
            streamed(api, key, llama)
            embedded(api, key, llama)
            stop(child)
            if child.returncode != 0:
                raise Failed(f"tidegate dev ended with {child.returncode} after SIGTERM")
        except (Failed, OSError, ValueError, KeyError) as error:
            print(f"\nerror: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            for child in reversed(children):
                stop(child)
    print("\nall three were answered by llama.cpp")
    return 0


sys.exit(main())
