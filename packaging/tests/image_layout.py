#!/usr/bin/env python3
"""Checks an OCI image layout against its tree: digests, labels, user, and each file of its layer.

packaging/tests/image_layout.py LAYOUT TREE ARCHITECTURE
"""

import gzip
import hashlib
import io
import json
import re
import sys
import tarfile
from pathlib import Path

layout, tree, architecture = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


def read_blob(descriptor):
    content = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"], "a blob differs from its digest"
    assert len(content) == descriptor["size"], "the size of a blob differs"
    return content


assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
[entry] = json.loads((layout / "index.json").read_text())["manifests"]
assert entry["platform"] == {"architecture": architecture, "os": "linux"}, entry
manifest = json.loads(read_blob(entry))
image = json.loads(read_blob(manifest["config"]))
assert (image["architecture"], image["os"]) == (architecture, "linux"), image
config = image["config"]
assert config["User"] == "65532:65532", "the image runs as another user"
assert config["Entrypoint"] == ["/usr/bin/keyward"], config

package = Path("Cargo.toml").read_text()
field = lambda name: re.search(rf'^{name} = "(.*)"$', package, re.MULTILINE).group(1)
labels = config["Labels"]
for label, name in [("title", "name"), ("version", "version"), ("description", "description"), ("licenses", "license")]:
    assert labels[f"org.opencontainers.image.{label}"] == field(name), f"label {label}: {labels}"
assert manifest["annotations"] == labels, "the annotations of the manifest differ from the labels"

[layer] = manifest["layers"]
archive = gzip.decompress(read_blob(layer))
assert ["sha256:" + hashlib.sha256(archive).hexdigest()] == image["rootfs"]["diff_ids"], "the layer differs from its diff_id"
with tarfile.open(fileobj=io.BytesIO(archive)) as files:
    members = {member.name: member for member in files}
    assert set(members) == {str(path.relative_to(tree)) for path in tree.rglob("*")}, sorted(members)
    for name, member in members.items():
        assert member.uid == (65532 if name == "run/keyward" else 0), f"{name} is owned by {member.uid}"
        assert not member.mode & 0o022, f"{name} is writable for group or others"
        if member.isfile():
            assert files.extractfile(member).read() == (tree / name).read_bytes(), f"{name} differs"
    assert members["usr/bin/keyward"].mode == 0o755, "the mode of the program is wrong"
print(f"packaging: layout: {len(members)} files, layer of {layer['size']} bytes compressed, {entry['digest']}")
