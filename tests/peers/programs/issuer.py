"""An issuer of certificates. Its first argument says whether it lies, and how:

honest     it does not
redirect   the directory redirects to itself
oversized  the directory is too large
busy       it takes no orders, and asks for a pause without end
past       it suggests that certificates be renewed yesterday, and asks for a pause without end
key        the certificate belongs to another key
names      the certificate is for another name
private    the certificate comes with a private key
garbage    the certificate is none

Others say where it validates names, instead of not at all: http:PORT, tls:PORT, dns:FILE with lines of names and
texts of records. With "wildcard", the order is for all names below a.test.

It reads ca.pem, ca.key, own.pem and own.key (of its own certificate), and prints its port. Signatures are
not checked. Only the standard library and openssl are needed.
"""

import base64
import hashlib
import http.client
import http.server
import json
import socket
import ssl
import subprocess
import sys

MODE = sys.argv[1]
VALIDATED_AT = [where.split(":") for where in sys.argv[2:] if where != "wildcard"]
WILDCARD = "wildcard" in sys.argv[2:]
ENDLESS = str(2**64 - 1)
NAME = "a.test" if WILDCARD else "localhost"
TOKEN = "0123456789abcdefghijkl"


def text(name):
    with open(name) as file:
        return file.read()


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_base64url(data):
    return base64.urlsafe_b64decode(data + "==")


def openssl(*arguments):
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True).stdout


def issue(csr, names):
    """Signs a request, for these names."""
    with open("request.der", "wb") as file:
        file.write(csr)
    with open("extensions", "w") as file:
        file.write(f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\n")
    command = "x509 -req -inform DER -in request.der -CA ca.pem -CAkey ca.key -days 90"
    return openssl(*command.split(), "-extfile", "extensions")


def elements(der):
    """The elements of a sequence in DER: tags and contents."""
    found = []
    while der:
        tag, length, start = der[0], der[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(der[2:start], "big")
        found.append((tag, der[start : start + length]))
        der = der[start + length :]
    return found


def extensions(certificate):
    """The extensions of a certificate in DER: whether they are critical, and their contents."""
    signed = elements(elements(elements(certificate)[0][1])[0][1])
    (all,) = [contents for tag, contents in signed if tag == 0xA3]
    parts = [elements(one) for _, one in elements(elements(all)[0][1])]
    return {one[0][1].hex(): (len(one) == 3 and one[1][1] == b"\xff", one[-1][1]) for one in parts}


def validate_http(port, authorization):
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    connection.request("GET", f"/.well-known/acme-challenge/{TOKEN}", headers={"Host": NAME})
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200 and body.decode() == authorization, f"{response.status}: {body}"


def validate_tls(port, authorization):
    """RFC 8737, 3."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["acme-tls/1"])
    with socket.create_connection(("127.0.0.1", int(port))) as plain:
        with context.wrap_socket(plain, server_hostname=NAME) as tls:
            assert tls.selected_alpn_protocol() == "acme-tls/1", tls.selected_alpn_protocol()
            certificate = tls.getpeercert(binary_form=True)
    found = extensions(certificate)
    names = found["551d11"][1]
    assert elements(elements(names)[0][1]) == [(0x82, NAME.encode())], names
    is_critical, proof = found["2b0601050507011f"]
    assert is_critical
    assert elements(proof) == [(4, hashlib.sha256(authorization.encode()).digest())], proof
    with open("proof.pem", "w") as file:
        file.write(ssl.DER_cert_to_PEM_cert(certificate))
    # It has signed itself.
    openssl("verify", "-ignore_critical", "-check_ss_sig", "-CAfile", "proof.pem", "proof.pem")


def validate_dns(file, authorization):
    """RFC 8555, 8.4."""
    record = base64url(hashlib.sha256(authorization.encode()).digest())
    found = text(file).splitlines()
    assert f"_acme-challenge.{NAME}. {record}" in found, found


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    chain = ""
    accounts = {}
    # The state of the only authorization.
    status = "pending" if VALIDATED_AT else "valid"
    problem = ""

    def log_message(self, *_):
        pass

    def answer(self, status, body="", **fields):
        body = body if isinstance(body, str) else json.dumps(body)
        self.send_response(status)
        self.send_header("Replay-Nonce", "abc")
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def url(self, path):
        return f"https://localhost:{self.server.server_port}/{path}"

    def do_HEAD(self):
        self.answer(200)

    def do_GET(self):
        if MODE == "redirect":
            return self.answer(307, Location=self.url("dir"))
        if MODE == "oversized":
            return self.answer(200, " " * 1_000_000)
        if self.path.startswith("/renewal/"):
            window = {"start": "2001-01-01T00:00:00Z", "end": "2001-01-02T00:00:00Z"}
            return self.answer(200, {"suggestedWindow": window}, Retry_After=ENDLESS)
        names = {"newNonce": "nonce", "newAccount": "account", "newOrder": "order"}
        if MODE == "past":
            names["renewalInfo"] = "renewal"
        self.answer(200, {name: self.url(path) for name, path in names.items()})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        protected = json.loads(from_base64url(body["protected"]))
        payload = from_base64url(body["payload"])
        path = self.path
        if path == "/account":
            jwk = json.dumps(protected["jwk"], sort_keys=True, separators=(",", ":"))
            thumbprint = base64url(hashlib.sha256(jwk.encode()).digest())
            Handler.accounts[self.url(thumbprint)] = thumbprint
            self.answer(201, {"status": "valid"}, Location=self.url(thumbprint))
        elif path == "/order" and MODE == "busy":
            problem = {"type": "urn:ietf:params:acme:error:rateLimited", "detail": "later"}
            self.answer(429, problem, Retry_After=ENDLESS)
        elif path == "/order":
            order = {"status": "pending", "authorizations": [self.url("authorization")]}
            order["finalize"] = self.url("finalize")
            self.answer(201, order, Location=self.url("order/1"))
        elif path == "/authorization":
            challenge = {"token": TOKEN, "url": self.url("challenge")}
            kinds = ["dns-01"] if WILDCARD else ["http-01", "tls-alpn-01", "dns-01"]
            authorization = {
                "status": Handler.status,
                "identifier": {"type": "dns", "value": NAME},
                "challenges": [{"type": kind, **challenge} for kind in kinds],
                "error": {"type": "unauthorized", "detail": Handler.problem},
            }
            if WILDCARD:
                authorization["wildcard"] = True
            self.answer(200, authorization)
        elif path == "/challenge":
            self.validate(f"{TOKEN}.{Handler.accounts[protected['kid']]}")
            self.answer(200, {"status": "processing"})
        elif path == "/finalize":
            csr = json.loads(payload)["csr"]
            names = "DNS:other.test" if MODE == "names" else f"DNS:{'*.' if WILDCARD else ''}{NAME}"
            Handler.chain = issue(from_base64url(csr), names)
            self.answer(200, {"status": "valid", "certificate": self.url("certificate")})
        elif path == "/certificate":
            chain = {
                "key": text("own.pem"),
                "private": Handler.chain + text("own.key"),
                "garbage": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            }
            self.answer(200, chain.get(MODE, Handler.chain))
        else:
            self.answer(200, {"status": "ready"})

    def validate(self, authorization):
        try:
            for kind, where in VALIDATED_AT:
                kinds = {"http": validate_http, "tls": validate_tls, "dns": validate_dns}
                kinds[kind](where, authorization)
            Handler.status = "valid"
        except Exception as error:
            Handler.status, Handler.problem = "invalid", repr(error)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client may leave at any time."""


server = Server(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("own.pem", "own.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
