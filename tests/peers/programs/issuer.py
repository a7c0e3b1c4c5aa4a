"""An issuer of certificates that lies. Its argument says how:

redirect   the directory redirects to itself
oversized  the directory is too large
key        the certificate belongs to another key
names      the certificate is for another name
private    the certificate comes with a private key
garbage    the certificate is none

It reads ca.pem, ca.key, own.pem and own.key (of its own certificate), and prints its port. Signatures are
not checked. Only the standard library and openssl are needed.
"""

import base64
import http.server
import json
import ssl
import subprocess
import sys

MODE = sys.argv[1]


def text(name):
    with open(name) as file:
        return file.read()


def issue(csr, names):
    """Signs a request, for these names."""
    with open("request.der", "wb") as file:
        file.write(csr)
    with open("extensions", "w") as file:
        file.write(f"subjectAltName={names}\n")
    command = "openssl x509 -req -inform DER -in request.der -CA ca.pem -CAkey ca.key -days 90"
    command += " -extfile extensions"
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    chain = ""

    def log_message(self, *_):
        pass

    def answer(self, status, body="", **fields):
        body = body if isinstance(body, str) else json.dumps(body)
        self.send_response(status)
        self.send_header("Replay-Nonce", "abc")
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name, value)
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
        names = {"newNonce": "nonce", "newAccount": "account", "newOrder": "order"}
        self.answer(200, {name: self.url(path) for name, path in names.items()})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        payload = base64.urlsafe_b64decode(body["payload"] + "==")
        path = self.path
        if path == "/account":
            self.answer(201, {"status": "valid"}, Location=self.url("account/1"))
        elif path == "/order":
            order = {"status": "pending", "authorizations": [self.url("authz")]}
            order["finalize"] = self.url("finalize")
            self.answer(201, order, Location=self.url("order/1"))
        elif path == "/authz":
            self.answer(200, {"status": "valid"})
        elif path == "/finalize":
            csr = json.loads(payload)["csr"]
            names = "DNS:other.test" if MODE == "names" else "DNS:localhost"
            Handler.chain = issue(base64.urlsafe_b64decode(csr + "=="), names)
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


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("own.pem", "own.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
