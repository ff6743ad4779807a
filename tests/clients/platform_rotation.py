"""A change of state with pytfe in whose middle something happens: it says so, and goes on when it is told to.

Where the platform is and who asks: TFE_ADDRESS and TFE_TOKEN. What stands on standard input ends the wait.
"""
import base64
import hashlib
import json
import sys

from pytfe import TFEClient, TFEConfig, models

with TFEClient(TFEConfig(http2=False)) as tfe:
    workspace = tfe.workspaces.create("example", models.WorkspaceCreateOptions(name="rotation"))
    tfe.workspaces.lock(workspace.id, models.WorkspaceLockOptions(reason="a long change"))
    print("in the middle", flush=True)
    sys.stdin.readline()
    raw = json.dumps({"version": 4, "serial": 1, "lineage": "x", "resources": [], "outputs": {}}).encode()
    tfe.state_versions.create(workspace.id, models.StateVersionCreateOptions(
        serial=1, md5=hashlib.md5(raw).hexdigest(), lineage="x", state=base64.b64encode(raw).decode()
    ))
    tfe.workspaces.unlock(workspace.id)
