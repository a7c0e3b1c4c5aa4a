"""A server of SCGI: what the path asks for. Writes its port to standard output."""

import socketserver
import zlib


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        length = b""
        while (byte := self.rfile.read(1)) != b":":
            if not byte:
                return
            length += byte
        parts = self.rfile.read(int(length)).split(b"\0")
        assert self.rfile.read(1) == b","
        names = parts[0:-1:2]
        assert names[0] == b"CONTENT_LENGTH" and len(set(names)) == len(names), names
        params = {name.decode(): value.decode() for name, value in zip(names, parts[1::2])}
        assert params["SCGI"] == "1"
        self.answer(params, int(params["CONTENT_LENGTH"]))

    def answer(self, params, left):
        path = params["DOCUMENT_URI"]
        if path == "/upload":
            size, check = 0, 1
            while left and (piece := self.rfile.read(min(left, 65536))):
                size, check, left = size + len(piece), zlib.adler32(piece, check), left - len(piece)
            self.respond("200 OK", [f"{size} {check:08x}".encode()])
        elif path == "/large":
            self.respond("200 OK", [bytes([97 + n % 26]) * 10000 for n in range(1000)])
        elif path == "/dies":
            self.wfile.write(b"Status: 200 OK\r\nContent-Length: 100\r\n\r\npart")
        else:
            content = self.rfile.read(left).decode()
            facts = [params["REQUEST_METHOD"], params["HTTP_HOST"], path, params["QUERY_STRING"], content]
            self.respond("202 Taken", [" ".join(facts).encode()])

    def respond(self, status, body):
        self.wfile.write(f"Status: {status}\r\nContent-Type: text/plain\r\nX-Own: 1\r\n\r\n".encode())
        for part in body:
            self.wfile.write(part)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


with Server(("127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
