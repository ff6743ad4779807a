"""Uses the SDKs of Azure, AWS and Google Cloud for Python, as programs on them do, against keyward's identity listener.

    identity_sdks.py app-service RESOURCE SECONDS
    identity_sdks.py aws SECONDS
    identity_sdks.py gcp CREDENTIAL_FILE SECONDS

Asks as often as a program without a cache would, and ends with an error at the first token that has expired. Prints the number of
requests and of different tokens.
"""

import base64
import json
import sys
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
            answer = {"access_token": "a", "expires_in": 60, "token_type": "Bearer", "issued_token_type": issued}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

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
    {"app-service": app_service, "aws": aws, "gcp": gcp}[sys.argv[1]](*sys.argv[2:])
