"""An application of WSGI: what the path asks for."""

import zlib


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/chat":
        return chat()
    if path == "/upload":
        size, check = 0, 1
        while piece := environ["wsgi.input"].read(65536):
            size, check = size + len(piece), zlib.adler32(piece, check)
        body = [f"{size} {check:08x}".encode()]
    elif path == "/large":
        body = [bytes([97 + n % 26]) * 10000 for n in range(1000)]
    else:
        body = [f"{environ['REQUEST_METHOD']} {environ['HTTP_HOST']} {path}".encode()]
    start_response("202 Taken", [("Content-Type", "text/plain"), ("X-Own", "1")])
    return body


def chat():
    """A WebSocket that returns its messages."""
    import uwsgi

    uwsgi.websocket_handshake()
    try:
        while True:
            uwsgi.websocket_send(uwsgi.websocket_recv())
    except OSError:
        return []
