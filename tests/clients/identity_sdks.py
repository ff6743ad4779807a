"""Uses the SDKs of Azure, AWS and Google Cloud for Python, as programs on them do, against keyward's identity listener.

    identity_sdks.py app-service RESOURCE SECONDS
    identity_sdks.py workload-identity SECONDS
    identity_sdks.py aws SECONDS
    identity_sdks.py gcp CREDENTIAL_FILE SECONDS

Asks as often as a program without a cache would, and ends with an error at the first token that has expired. Prints the number of
requests and of different tokens.
"""

import base64
import json
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, HTTPServer


def end(token):
    """Returns the seconds in the claim exp of a signed token."""
    payload = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]


def follow(seconds, ask):
    """Asks again and again for some seconds. What it gets has a name and an end, which must not have come."""
    requests, tokens = 0, set()
    until = time.time() + float(seconds)
    while time.time() < until:
        token, expires = ask()
        if expires <= time.time():
            sys.exit(f"request {requests} got a token that has expired")
        requests += 1
        tokens.add(token)
        time.sleep(0.1)
    print(requests, len(tokens))


def app_service(resource, seconds):
    from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

    classes = [ManagedIdentityCredential, DefaultAzureCredential]

    def ask():
        # A new credential has no token in its cache.
        classes.reverse()
        with classes[0]() as credential:
            token = credential.get_token(resource + "/.default")
        # The SDK counts from its own clock, in whole seconds.
        if abs(token.expires_on - end(token.token)) > 1:
            sys.exit(f"expires_on is {token.expires_on}")
        return token.token, token.expires_on

    follow(seconds, ask)


def aws(seconds):
    import boto3

    def ask():
        credentials = boto3.Session().get_credentials()
        frozen = credentials.get_frozen_credentials()
        if not frozen.secret_key or not frozen.token:
            sys.exit(f"credentials by {credentials.method} lack a part")
        # There is no public name for the end.
        return frozen.access_key, credentials._expiry_time.timestamp()

    follow(seconds, ask)


def workload_identity(seconds):
    from azure.identity import WorkloadIdentityCredential

    assertions = []

    class Authority(BaseHTTPRequestHandler):
        """Takes the place of Microsoft Entra ID."""

        def do_POST(self):
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            assertions.append(form["client_assertion"][0])
            answer(self, {"access_token": "a", "expires_in": 60, "token_type": "Bearer"})

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Authority)
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = f"{folder}/key.pem", f"{folder}/certificate.pem"
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=authority"
        command = [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        authority = f"https://127.0.0.1:{server.server_port}"

        def ask():
            # Tenant, client and file come from the variables.
            options = {"authority": authority, "disable_instance_discovery": True, "connection_verify": certificate}
            with WorkloadIdentityCredential(**options) as credential:
                credential.get_token("https://management.azure.com/.default")
            return assertions[-1], end(assertions[-1])

        follow(seconds, ask)


def answer(handler, content):
    """Answers a request with JSON."""
    body = json.dumps(content).encode()
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def gcp(file, seconds):
    import google.auth.identity_pool
    import google.auth.transport.requests

    subjects = []

    class TokenService(BaseHTTPRequestHandler):
        """Takes the place of Google's token service."""

        def do_POST(self):
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            subjects.append(form["subject_token"][0])
            issued = "urn:ietf:params:oauth:token-type:access_token"
            token = {"access_token": "a", "expires_in": 60, "token_type": "Bearer", "issued_token_type": issued}
            answer(self, token)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), TokenService)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(file) as text:
        info = json.load(text)
    info["token_url"] = f"http://127.0.0.1:{server.server_port}/"
    request = google.auth.transport.requests.Request()

    def ask():
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        google.auth.identity_pool.Credentials.from_info(info, scopes=scopes).refresh(request)
        return subjects[-1], end(subjects[-1])

    follow(seconds, ask)


if __name__ == "__main__":
    forms = {"app-service": app_service, "workload-identity": workload_identity, "aws": aws, "gcp": gcp}
    forms[sys.argv[1]](*sys.argv[2:])
