"""What scripts/check_remote.sh does once there is everything: python check_remote.py RESHARD FOLDER AZURITE-BLOB"""
import http.server, json, os, random, re, socket, struct, subprocess, sys, threading, time, urllib.parse
from pathlib import Path

import boto3
from azure.storage.blob import BlobServiceClient
from botocore.config import Config
from moto.server import ThreadedMotoServer

reshard, work, azurite = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
checked = 0


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(*arguments, env=None, status=0):
    """The program with these arguments; says what it printed."""
    global checked
    done = subprocess.run([reshard, *map(str, arguments)], env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, f"{arguments}: {done.returncode}, {done.stdout}{done.stderr}"
    if status == 2 or (status == 1 and done.stderr):
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: "), f"not one sentence: {done.stderr}"
        assert len(lines[0]) < 1000, done.stderr
    checked += 1
    return done.stdout + done.stderr


class Files(http.server.BaseHTTPRequestHandler):
    """A web server of a folder, with ranges and tags."""
    protocol_version = "HTTP/1.1"
    root, ranges = None, True

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        path = Path(self.root) / urllib.parse.unquote(self.path).lstrip("/")
        if not path.is_file():
            return self.send(404, b"nothing here", {}, body)
        data = path.read_bytes()
        tag = f'"{path.stat().st_mtime_ns:x}"'
        if self.headers.get("If-Match", tag) != tag:
            return self.send(412, b"", {}, body)
        headers = {"ETag": tag, "Last-Modified": self.date_time_string(path.stat().st_mtime)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if self.ranges else None
        if asked:
            first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return self.send(206, data[first:last + 1], headers, body)
        self.send(200, data, headers, body)

    def send(self, status, data, headers, body):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_):
        pass


def serve(handler, **attributes):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), attributes))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"127.0.0.1:{server.server_address[1]}"


class Between(http.server.BaseHTTPRequestHandler):
    """A server in between that passes on, or fails in one of several ways."""
    protocol_version = "HTTP/1.1"
    to, rate, ways, seen, dice = None, 0.0, (), {}, None

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        import http.client
        way = self.dice.choice(self.ways) if self.dice.random() < self.rate else None
        if way:
            self.seen[way] = self.seen.get(way, 0) + 1
        if way == "500":
            self.send_response(500)
            self.send_header("Content-Length", "9")
            self.end_headers()
            if body:
                self.wfile.write(b"oops\noops")
            return
        if way == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        other = http.client.HTTPConnection(self.to, timeout=30)
        other.request(self.command, self.path, headers={key: value for key, value in self.headers.items()})
        answer = other.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                self.send_header(key, value)
        self.send_header("Content-Length", answer.getheader("Content-Length", str(len(data))) if not body else str(len(data)))
        self.end_headers()
        if body and way == "short":
            self.wfile.write(data[:len(data) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif body:
            self.wfile.write(data)

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass


# What is put there: the small checkpoint that is made by code, in every format that is written.
made = work / "made"
run("run", "--mesh", "dp=2,tp=2", "--to", "S(0),S(1)", "--out", made / "ranks")
run("run", made / "ranks", "--gather", made / "whole.safetensors")
for format in ("dcp", "dcp-safetensors"):
    run("run", made / "ranks", "--mesh", "a=3", "--to", "S(0)", "--format", format, "--out", made / format)
run("run", made / "ranks", "--format", "safetensors", "--file-bytes", "1000000", "--out", made / "index")
files = [path.relative_to(made) for path in sorted(made.rglob("*")) if path.is_file()]
folders = ["ranks", "dcp", "dcp-safetensors", "index"]
print(f"{len(files)} files of {len(folders) + 1} checkpoints")


def look(base, env, listed=True, end=""):
    """All checkpoints below a URL are those that were made, and can be resharded from there."""
    for name in folders:
        if name == "dcp-safetensors" and not listed:
            assert "no list" in run("inspect", f"{base}/{name}/", env=env, status=2)
            continue
        run("diff", f"{base}/{name}{end}", made / name, env=env)
        run("verify", f"{base}/{name}{end}", env=env)
    run("diff", f"{base}/whole.safetensors", made / "whole.safetensors", env=env)
    for number, (source, to) in enumerate([("whole.safetensors", "S(1)"), ("ranks" + end, "S(1),R"), ("dcp" + end, "SS(0,2)")]):
        out = work / "out"
        mesh = "dp=2,tp=2" if "," in to else "a=4"
        run("run", f"{base}/{source}", "--mesh", mesh, "--to", to, "--out", out, "--force", env=env)
        run("diff", out, made / "whole.safetensors")
    assert "URL" in run("run", made / "ranks", "--out", f"{base}/out", "--mesh", "a=2", "--to", "R", env=env, status=2)


# S3.
port = free_port()
moto = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
moto.start()
keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="key",
                      aws_secret_access_key="secret", config=Config(s3={"addressing_style": "path"}))
client.create_bucket(Bucket="bucket")
for file in files:
    client.upload_file(str(made / file), "bucket", f"some/{file}")
s3 = {**keys, "AWS_ENDPOINT": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}
look("s3://bucket/some", s3)
said = run("inspect", "s3://bucket/other", env=s3, status=2)
assert "none below it" in said, said
said = run("inspect", "s3://nowhere/x", env=s3, status=2)
assert "s3://nowhere/x" in said, said
print("s3: every format")

# Google Cloud Storage speaks the same XML; moto takes its place, since there is no server of its own to be had from a registry.
key = work / "key.json"
key.write_text(json.dumps({"gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}))
look("gs://bucket/some", {"GOOGLE_SERVICE_ACCOUNT": str(key), "GOOGLE_ALLOW_HTTP": "true"})
print("gs: every format, by the server of s3")

# Azure.
blob = free_port()
storage = work / "azurite"
server = subprocess.Popen([azurite, "--silent", "--skipApiVersionCheck", "--location", str(storage), "--blobPort", str(blob)], stdout=subprocess.DEVNULL)
try:
    account, secret = "devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    endpoint = f"http://127.0.0.1:{blob}/{account}"
    service = BlobServiceClient(endpoint, credential=secret)
    for attempt in range(100):
        try:
            service.create_container("container")
            break
        except Exception:
            time.sleep(0.3)
    for file in files:
        service.get_blob_client("container", f"some/{file}").upload_blob((made / file).read_bytes())
    azure = {"AZURE_STORAGE_ACCOUNT_NAME": account, "AZURE_STORAGE_ACCOUNT_KEY": secret, "AZURE_ENDPOINT": endpoint, "AZURE_ALLOW_HTTP": "true"}
    look("az://container/some", azure)
    wrong = run("inspect", "az://container/some/ranks", env={**azure, "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}, status=2)
    assert "does not let us" in wrong, wrong
    print("az: every format; a wrong key is refused")
finally:
    server.terminate()
    server.wait()

# A web server.
web, host = serve(Files, root=made)
look(f"http://{host}", {}, listed=False, end="/")
said = run("inspect", f"http://{host}/nothing.safetensors", status=2)
assert "no such file" in said, said
_, rangeless = serve(Files, root=made, ranges=False)
said = run("inspect", f"http://{rangeless}/whole.safetensors", status=2)
print("http: every format that needs no list;", said.strip())

# Failures on the way that pass.
for name, to, base, env in [("s3", f"127.0.0.1:{port}", "s3://bucket/some", s3), ("http", host, None, {})]:
    for ways in (["500"], ["short"], ["reset"], ["500", "short", "reset"]):
        seen = {}
        between, here = serve(Between, to=to, rate=0.2, ways=ways, seen=seen, dice=random.Random(7))
        env = {**s3, "AWS_ENDPOINT": f"http://{here}"} if base else {}
        source = base or f"http://{here}"
        run("diff", f"{source}/ranks{'' if base else '/'}", made / "ranks", env=env)
        run("verify", f"{source}/dcp{'' if base else '/'}", env=env)
        out = work / "out"
        run("run", f"{source}/whole.safetensors", "--mesh", "a=4", "--to", "S(1)", "--out", out, "--force", env=env)
        run("diff", out, made / "whole.safetensors")
        assert set(seen) == set(ways), seen
        between.shutdown()
        print(f"{name}: right although {sum(seen.values())} answers failed ({', '.join(f'{way} {count}' for way, count in sorted(seen.items()))})")

# Failures that stay: one sentence, and no output.
gone = free_port()
absent = work / "absent"
for way, arguments in {
    "short": {"rate": 1.0, "ways": ["short"]},
    "500": {"rate": 1.0, "ways": ["500"]},
    "reset": {"rate": 1.0, "ways": ["reset"]},
}.items():
    between, here = serve(Between, to=f"127.0.0.1:{port}", seen={}, dice=random.Random(8), **arguments)
    env = {**s3, "AWS_ENDPOINT": f"http://{here}"}
    done = subprocess.run([reshard, "run", "s3://bucket/some/whole.safetensors", "--mesh", "a=2", "--to", "S(0)", "--out", str(absent)],
                          env={**os.environ, **env}, capture_output=True, text=True, timeout=180)
    lines = done.stderr.strip().splitlines()
    assert done.returncode in (1, 2) and len(lines) == 1 and lines[0].startswith("error: ") and not absent.exists(), done.stderr
    print(f"{way} always: status {done.returncode}, {lines[0]}")
    between.shutdown()
    checked += 1
said = run("inspect", "s3://bucket/some/ranks", env={**s3, "AWS_ENDPOINT": f"http://127.0.0.1:{gone}"}, status=2)
print("nobody there:", said.strip())
said = run("inspect", "http://[::/x", status=2)
print("no URL:", said.strip())
print(f"{checked} runs of the program")
moto.stop()
