"""An HTTPS server that says what it is sent: its port, then for each request the number of its connection, path and body."""

import itertools
import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

numbers = itertools.count()
saying = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        self.number = next(numbers)
        super().setup()

    def take(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        with saying:
            print(json.dumps([self.number, self.path, body]), flush=True)
        self.send_response(204)
        self.end_headers()

    do_POST = do_PUT = take

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def finish_request(self, request, client_address):
        # In the connection's own thread: who shakes hands slowly delays nobody.
        try:
            request = context.wrap_socket(request, server_side=True)
        except OSError:
            return
        super().finish_request(request, client_address)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
