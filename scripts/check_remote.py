"""The checks of scripts/check_remote.sh after set-up: python check_remote.py RESHARD FOLDER AZURITE-BLOB"""
import datetime, http.server, ipaddress, json, logging, os, random, re, socket, ssl, struct, subprocess, sys, threading, time, urllib.parse
from pathlib import Path

import boto3
from azure.storage.blob import BlobServiceClient
from botocore.config import Config
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from moto.server import ThreadedMotoServer

reshard, work, azurite = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
checked = 0
logging.getLogger("werkzeug").setLevel(logging.ERROR)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(*arguments, env=None, status=0):
    """Runs the program with these arguments and returns its output."""
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
    root, ranges, tags, dates, conditions, after = None, True, True, True, True, None

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        path = Path(self.root) / urllib.parse.unquote(self.path).lstrip("/")
        if self.after and "Range" in self.headers:
            self.after(path)
        if not path.is_file():
            return self.send(404, b"nothing here", {}, body)
        data = path.read_bytes()
        tag = f'"{path.stat().st_mtime_ns:x}"'
        date = self.date_time_string(path.stat().st_mtime)
        if self.conditions and (self.headers.get("If-Match", tag) != tag or self.headers.get("If-Unmodified-Since", date) != date):
            return self.send(412, b"", {}, body)
        headers = {**({"ETag": tag} if self.tags else {}), **({"Last-Modified": date} if self.dates else {})}
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


def serve(handler, tls=None, **attributes):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), attributes))
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    # A client closes the connection when it rejects a response.
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"127.0.0.1:{server.server_address[1]}"


class Between(http.server.BaseHTTPRequestHandler):
    """A proxy that forwards requests, or fails in one of several modes."""
    protocol_version = "HTTP/1.1"
    to, rate, ways, seen, dice, sent = None, 0.0, (), {}, None, None

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        import http.client
        way = self.dice.choice(self.ways) if self.dice.random() < self.rate else None
        if way:
            self.seen[way] = self.seen.get(way, 0) + 1
        if way in ("500", "503", "403", "401"):
            self.send_response(int(way))
            self.send_header("Content-Length", "9")
            self.end_headers()
            if body:
                self.wfile.write(b"oops\noops")
            return
        if way == "silent":
            time.sleep(20)
            self.close_connection = True
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
        if body and way == "long":
            data += b"more"
        self.send_header("Content-Length", answer.getheader("Content-Length", str(len(data))) if not body else str(len(data)))
        self.end_headers()
        if body and self.sent is not None and "Range" in self.headers:
            self.sent.append(len(data))
        if body and way == "drip":
            for at in range(len(data)):
                self.wfile.write(data[at:at + 1])
                self.wfile.flush()
                time.sleep(0.3)
        elif body and way == "short":
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


# The stored data: the small checkpoint that is generated by code, in every format that can be written.
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
    """Checks that all checkpoints below a URL equal the written ones, and can be resharded from there."""
    for name in folders:
        if name == "dcp-safetensors" and not listed:
            assert "cannot list" in run("inspect", f"{base}/{name}/", env=env, status=2)
            continue
        run("diff", f"{base}/{name}{end}", made / name, env=env)
        run("verify", f"{base}/{name}{end}", env=env)
    run("diff", f"{base}/whole.safetensors", made / "whole.safetensors", env=env)
    out = work / "out"
    for source, mesh, to in [("whole.safetensors", "a=4", "S(1)"), ("ranks" + end, "dp=2,tp=2", "S(1),R"), ("dcp" + end, "a=3", "S(0)")]:
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
# It is publicly readable, because a client of Google Cloud has no S3 key.
client.create_bucket(Bucket="bucket", ACL="public-read")
for file in files:
    client.upload_file(str(made / file), "bucket", f"some/{file}", ExtraArgs={"ACL": "public-read"})
s3 = {**keys, "AWS_ENDPOINT": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}
look("s3://bucket/some", s3)
said = run("inspect", "s3://bucket/other", env=s3, status=2)
assert "none below it" in said, said
said = run("inspect", "s3://nowhere/x", env=s3, status=2)
assert "s3://nowhere/x" in said, said
print("s3: every format")

# Google Cloud Storage uses the same XML; moto replaces it, since no registry has a server for it.
key = work / "key.json"
key.write_text(json.dumps({"gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}))
look("gs://bucket/some", {"GOOGLE_SERVICE_ACCOUNT": str(key), "GOOGLE_ALLOW_HTTP": "true"})
print("gs: every format, by the server of s3")

# Azure.
blob = free_port()
storage = work / "azurite"
server = subprocess.Popen([azurite, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", str(storage), "--blobPort", str(blob)], stdout=subprocess.DEVNULL)
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
    assert "denies access" in wrong, wrong
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
said = run("inspect", f"http://{rangeless}/whole.safetensors", status=1)
assert "range requests" in said, said
print("http: every format that needs no list;", said.strip())

# Temporary failures during transfers.
for name, to, base, env in [("s3", f"127.0.0.1:{port}", "s3://bucket/some", s3), ("http", host, None, {})]:
    for ways in (["short"], ["500", "503", "short", "long", "reset"]):
        seen = {}
        between, here = serve(Between, to=to, rate=0.2, ways=ways, seen=seen, dice=random.Random(7))
        env = {**s3, "AWS_ENDPOINT": f"http://{here}"} if base else {}
        source = base or f"http://{here}"
        run("diff", f"{source}/ranks{'' if base else '/'}", made / "ranks", env=env)
        out = work / "out"
        run("run", f"{source}/whole.safetensors", "--mesh", "a=4", "--to", "S(1)", "--out", out, "--force", env=env)
        run("diff", out, made / "whole.safetensors")
        assert set(seen) == set(ways), seen
        between.shutdown()
        print(f"{name}: right although {sum(seen.values())} answers failed ({', '.join(f'{way} {count}' for way, count in sorted(seen.items()))})")

# Every byte once: the sum of the received bytes is the file, and the bytes that opening it reads.
sent = []
between, here = serve(Between, to=f"127.0.0.1:{port}", dice=random.Random(1), sent=sent)
env = {**s3, "AWS_ENDPOINT": f"http://{here}"}
run("run", "s3://bucket/some/whole.safetensors", "--mesh", "a=4", "--to", "S(0)", "--out", work / "out", "--force", env=env)
size = (made / "whole.safetensors").stat().st_size
assert size <= sum(sent) <= size + 10_000 and max(sent) <= 4 << 20, (size, sum(sent), max(sent))
print(f"every byte once: {sum(sent)} of {size} came, at most {max(sent)} at a time")
sent.clear()
run("inspect", "s3://bucket/some/whole.safetensors", env=env)
assert sum(sent) < 10_000, sum(sent)
between.shutdown()

absent = work / "absent"


def refused(what, source, words, env=None, within=60, there=False):
    """A run that cannot succeed: it ends soon, with a one-line message with the words, and no output."""
    global checked
    began = time.monotonic()
    done = subprocess.run([reshard, "run", source, "--mesh", "a=2", "--to", "S(0)", "--out", str(absent)],
                          env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=within + 60)
    took = time.monotonic() - began
    lines = done.stderr.strip().splitlines()
    assert done.returncode in (1, 2) and len(lines) == 1 and lines[0].startswith("error: "), (what, done.returncode, done.stdout, done.stderr)
    assert words in lines[0] and len(lines[0]) < 700 and took < within, (what, words, took, lines[0])
    assert not absent.exists() and not [one for one in work.iterdir() if "absent" in one.name], list(work.iterdir())
    print(f"{what}: status {done.returncode} after {took:.1f} s, {lines[0]}")
    checked += 1
    return lines[0]


# Permanent failures.
s3_file = "s3://bucket/some/whole.safetensors"
for way, words in {
    "500": "status 500", "503": "status 503", "403": "denies access", "401": "denies access",
    "reset": "the connection to its server breaks", "silent": "did not answer in time",
}.items():
    for name, to, base in [("s3", f"127.0.0.1:{port}", s3_file), ("http", host, None)]:
        between, here = serve(Between, to=to, seen={}, dice=random.Random(8), rate=1.0, ways=[way])
        env = {**s3, "AWS_ENDPOINT": f"http://{here}", "RESHARD_PATIENCE": "3" if way == "silent" else "20"}
        refused(f"{name}, {way} always", base or f"http://{here}/whole.safetensors", words, env)
        between.shutdown()
for way, words in {"short": "", "long": "more than the requested", "drip": "did not answer in time"}.items():
    between, here = serve(Between, to=f"127.0.0.1:{port}", seen={}, dice=random.Random(8), rate=1.0, ways=[way])
    refused(f"{way} always", s3_file, words, {**s3, "AWS_ENDPOINT": f"http://{here}", "RESHARD_PATIENCE": "1" if way == "drip" else "20"})
    between.shutdown()
gone = {**s3, "AWS_ENDPOINT": f"http://127.0.0.1:{free_port()}", "RESHARD_PATIENCE": "3"}
refused("nobody there", s3_file, "cannot be reached", gone)
refused("nobody there", f"http://127.0.0.1:{free_port()}/x.safetensors", "cannot be reached", {"RESHARD_PATIENCE": "3"})
refused("no such host", "http://no.such.host.invalid/x.safetensors", "cannot be reached", {"RESHARD_PATIENCE": "3"})
nobody = {"AWS_ENDPOINT": s3["AWS_ENDPOINT"], "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "RESHARD_PATIENCE": "3"}
refused("no credentials", s3_file, "there are no credentials", nobody)
refused("no object", "s3://bucket/some/nothing", "none below it", s3)
refused("no bucket", "s3://nowhere/x", "s3://nowhere/x", s3)
refused("no URL", "http://[::/x", "not a valid URL")
refused("patience", s3_file, "RESHARD_PATIENCE", {**s3, "RESHARD_PATIENCE": "soon"})
said = refused("a password", "http://me:secret@127.0.0.1/x", "must not contain a password")
assert "secret" not in said, said
said = refused("a signature", f"http://{host}/whole.safetensors?X-Signature=secret", "after `?`")
assert "secret" not in said, said
refused("a fragment", f"http://{host}/whole.safetensors#1", "%23")
said = run("run", made / "ranks", "--gather", "s3://bucket/whole.safetensors", env=s3, status=2)
assert "URL" in said, said

# Files that change or vanish during a read, with servers that check conditions and with servers that do not.
changing = work / "changing"
changing.mkdir()
whole = (made / "whole.safetensors").read_bytes()


def after(change):
    """Changes the file after its header has been read, which takes three ranges."""
    asked = []

    def look(path):
        asked.append(1)
        if len(asked) == 4:
            change(path)
    return staticmethod(look)


def anew(path):
    """Writes another file of the same length."""
    path.write_bytes(whole[:-4096] + bytes(4096))
    os.utime(path, (1_000_000_000, 1_000_000_000))


for what, change, attributes, words in [
    ("written anew", anew, {}, "changed while it was read"),
    ("written anew, no tags", anew, {"tags": False}, "changed while it was read"),
    ("written anew, no conditions", anew, {"conditions": False}, "changed while it was read"),
    ("written anew, neither", anew, {"conditions": False, "tags": False}, "changed while it was read"),
    ("cut, no tags and no dates", lambda path: path.write_bytes(whole[:-4096]), {"tags": False, "dates": False}, ""),
    ("removed", Path.unlink, {}, "no such object"),
]:
    (changing / "whole.safetensors").write_bytes(whole)
    server, here = serve(Files, root=changing, after=after(change), **attributes)
    refused(what, f"http://{here}/whole.safetensors", words)
    server.shutdown()
# A file from a server without tags and dates can be read too.
server, here = serve(Files, root=made, tags=False, dates=False)
run("diff", f"http://{here}/whole.safetensors", made / "whole.safetensors")

# TLS: a certificate by a trusted authority, by an untrusted one, and for another name.
def certificate(name, issuer=None, names=()):
    """Returns a key and a certificate, self-signed or signed by an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (x509.CertificateBuilder().subject_name(called).issuer_name(issuer[1].subject if issuer else called).public_key(key.public_key())
               .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=2))
               .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return key, builder.sign(issuer[0] if issuer else key, hashes.SHA256())


def server_of(names):
    """Returns the TLS context of a server with these names."""
    key, by_authority = certificate("server", authority, names)
    chain = work / "server.pem"
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain.write_bytes(private + by_authority.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return context


authority = certificate("authority")
trusted, others = work / "authority.pem", work / "others.pem"
trusted.write_bytes(authority[1].public_bytes(serialization.Encoding.PEM))
others.write_bytes(certificate("others")[1].public_bytes(serialization.Encoding.PEM))
local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
_, here = serve(Files, tls=server_of(local), root=made)
look(f"https://{here}", {"SSL_CERT_FILE": str(trusted)}, listed=False, end="/")
between, over = serve(Between, tls=server_of(local), to=f"127.0.0.1:{port}", dice=random.Random(2))
run("diff", "s3://bucket/some/ranks", made / "ranks", env={**keys, "AWS_ENDPOINT": f"https://{over}", "SSL_CERT_FILE": str(trusted)})
refused("an authority that is not trusted", f"https://{here}/whole.safetensors", "certificate", {"SSL_CERT_FILE": str(others), "RESHARD_PATIENCE": "3"})
_, elsewhere = serve(Files, tls=server_of([x509.DNSName("elsewhere.invalid")]), root=made)
refused("a certificate of another name", f"https://{elsewhere}/whole.safetensors", "certificate", {"SSL_CERT_FILE": str(trusted), "RESHARD_PATIENCE": "3"})
print("https and s3 over it, by a trusted authority alone")

# A run that is killed continues where it stopped, from a URL too, and requests only the missing bytes.
large = work / "large.safetensors"
dice, header, data = random.Random(3), {}, b""
for n in range(24):
    header[f"t{n}"] = {"dtype": "F32", "shape": [512, 1024], "data_offsets": [len(data), len(data) + (2 << 20)]}
    data += dice.randbytes(2 << 20)
text = json.dumps(header).encode()
large.write_bytes(struct.pack("<Q", len(text)) + text + data)
client.upload_file(str(large), "bucket", "large.safetensors")
sent, out = [], work / "goes_on"
between, here = serve(Between, to=f"127.0.0.1:{port}", dice=random.Random(4), sent=sent)
env = {**os.environ, **s3, "AWS_ENDPOINT": f"http://{here}"}
words = [reshard, "run", "s3://bucket/large.safetensors", "--mesh", "a=8", "--to", "S(0)", "--out", str(out), "--resume"]
kills = 0
while kills < 20:
    before, running = sum(sent), subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while running.poll() is None and sum(sent) < before + len(data) // 3:
        time.sleep(0.002)
    if running.poll() is not None:
        assert running.returncode == 0, running.stderr.read()
        break
    running.kill()
    running.wait()
    assert not out.exists(), "a killed run leaves no output"
    kills += 1
assert kills > 0
run("diff", out, large)
assert sum(sent) < 3 * len(data), (kills, sum(sent), len(data))
between.shutdown()
print(f"killed {kills} times and resumed: {sum(sent) / len(data):.2f} of the bytes came")

# Names that have to be escaped, folders that are an empty object, missing ranks, and a run that continues.
odd = "some dir/\u00e9 50% #1?+&=.safetensors"
client.upload_file(str(made / "whole.safetensors"), "bucket", odd)
run("diff", "s3://bucket/" + urllib.parse.quote(odd), made / "whole.safetensors", env=s3)
client.put_object(Bucket="bucket", Key="marked/ranks", Body=b"")
for file in (made / "ranks").iterdir():
    client.upload_file(str(file), "bucket", f"marked/ranks/{file.name}")
run("diff", "s3://bucket/marked/ranks", made / "ranks", env=s3)
run("run", made / "ranks", "--mesh", "dp=2,tp=2", "--to", "R,S(0)", "--out", work / "copies")
client.upload_file(str(work / "copies" / "sharding.json"), "bucket", "dead/sharding.json")
names = sorted(file.name for file in (work / "copies").iterdir() if file.suffix == ".safetensors")
for name in names[1:]:
    client.upload_file(str(work / "copies" / name), "bucket", f"dead/{name}")
said = run("run", "s3://bucket/dead", "--mesh", "a=2", "--to", "S(0)", "--out", work / "living", env=s3, status=2)
assert "--missing-ranks 0" in said, said
run("run", "s3://bucket/dead", "--missing-ranks", "0", "--mesh", "a=2", "--to", "S(0)", "--out", work / "living", env=s3)
run("diff", work / "living", made / "ranks")
for name in names[:1]:
    client.upload_file(str(work / "copies" / name), "bucket", f"lost/{name}")
client.upload_file(str(work / "copies" / "sharding.json"), "bucket", "lost/sharding.json")
lost = ["s3://bucket/lost", *(word for rank in range(1, 4) for word in ("--missing-ranks", rank)), "--mesh", "a=2", "--to", "S(0)", "--out", work / "filled"]
said = run("run", *lost, env=s3, status=2)
assert "fill-from" in said, said
run("run", *lost, "--fill-from", "s3://bucket/some/whole.safetensors", env=s3)
run("diff", work / "filled", made / "ranks")
print("odd names, folders that are an empty object, dead ranks")
print(f"{checked} runs of the program")
moto.stop()
