"""The application behind the site: echoes bodies, sends events, speaks WebSocket.

Prints its port. Only the standard library is needed.
"""

import base64
import hashlib
import http.server
import struct
import sys
import time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def respond(self, body, kind="application/octet-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            body += self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return body

    def do_POST(self):
        self.respond(self.body())

    def do_GET(self):
        if self.path == "/app/events":
            self.events()
        elif self.path == "/app/socket":
            self.socket()
        else:
            self.respond(self.path.encode(), "text/plain")

    def events(self):
        """Server-sent events, with pauses: nothing may hold them back."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number in range(5):
            self.wfile.write(b"data: %d\n\n" % number)
            self.wfile.flush()
            time.sleep(0.05)

    def socket(self):
        """Echoes the messages of a WebSocket (RFC 6455) until it is closed."""
        key = self.headers["Sec-WebSocket-Key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            kind, size = head[0] & 15, head[1] & 127
            if size == 126:
                size = struct.unpack("!H", self.rfile.read(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4)
            content = self.rfile.read(size)
            if size:
                repeated = (mask * (size // 4 + 1))[:size]
                content = (int.from_bytes(content, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
            if size < 126:
                length = bytes([size])
            elif size < 65536:
                length = b"\x7e" + struct.pack("!H", size)
            else:
                length = b"\x7f" + struct.pack("!Q", size)
            self.wfile.write(bytes([head[0]]) + length + content)
            self.wfile.flush()
            if kind == 8:
                return


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1])
sys.stdout.flush()
server.serve_forever()
