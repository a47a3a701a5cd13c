"""Stores on this machine for tests to speak with: S3's, Azure's, Google's and a web server.

Google's is moto as well, behind a proxy that translates: gcp-storage-emulator has the JSON
interface, and obstore speaks the XML one.

Each is a process that is started when it is first needed, listens on 127.0.0.1 at a free port, and
ends with the session. In front of each is a proxy that counts and can misbehave.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import importlib.util
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from dataclasses import asdict, dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, TypeVar

from tests.store_front import Misbehaviour

__all__ = [
    "Bucket",
    "Container",
    "Controlled",
    "Emulators",
    "MissingError",
    "Misbehaviour",
    "Website",
    "set_environment",
]

REPOSITORY = Path(__file__).parents[1]
AZURITE = REPOSITORY / ".emulators/node_modules/.bin/azurite-blob"
"""Where `.ci/setup nightly` puts it; a program of that name on the PATH serves as well."""

SECRET = "a-secret-of-the-tests-that-nobody-may-print"
Known = TypeVar("Known", bound="Controlled")
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Those of every emulator of Azure's, in its documentation."""


class MissingError(Exception):
    """A store can't be started here, because what it needs is not installed."""


@dataclass(frozen=True)
class Controlled:
    """A part of a store that a test has for itself.

    Attributes:
        name: The name of the bucket or folder, which no other test has.
        url: What tfrtool is given; without a slash at its end.
        environment: What a process needs in its environment to reach the store.
        control: The port of the proxy's control.
    """

    name: str
    url: str
    environment: dict[str, str]
    control: int

    def misbehave(self, *rules: Misbehaviour) -> None:
        """Set the rules of misbehaviour from now on; without rules, behave."""
        self._ask(rules=[asdict(rule) for rule in rules])

    def log(self) -> list[dict[str, Any]]:
        """Return what was asked for until now, in the order of the answers.

        Each is a dictionary of method, target, range, status, up, down (bytes of the bodies),
        started and seconds.
        """
        found: list[dict[str, Any]] = self._ask()
        return found

    def forget(self) -> None:
        """Reset the counts."""
        self._ask(forget=True)

    def requests(self) -> Counter[str]:
        """Return how many requests there were of each method."""
        return Counter(entry["method"] for entry in self.log())

    def down(self) -> int:
        """Return how many bytes were sent from the store, without headers."""
        return sum(int(entry["down"]) for entry in self.log())

    def up(self) -> int:
        """Return how many bytes were sent to the store, without headers."""
        return sum(int(entry["up"]) for entry in self.log())

    def _ask(self, **what: Any) -> Any:
        with socket.create_connection(("127.0.0.1", self.control), timeout=300) as connection:
            connection.sendall(json.dumps({"bucket": self.name, **what}).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline())

    def put(self, key: str, data: bytes) -> None:
        """Make or replace an object."""
        raise NotImplementedError

    def put_folder(self, folder: Path, prefix: str = "") -> None:
        """Make an object of each file below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(prefix + path.relative_to(folder).as_posix(), path.read_bytes())

    def get(self, key: str) -> bytes:
        """Return an object's bytes."""
        raise NotImplementedError

    def names(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects, sorted."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bucket(Controlled):
    """A bucket of S3's, which is empty at first; ``client`` is boto3's and is not counted."""

    client: Any

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return data

    def names(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.name, Prefix=prefix)
        return sorted(entry["Key"] for page in found for entry in page.get("Contents", []))

    def uploads(self) -> list[str]:
        """Return the keys of uploads that were begun, and neither ended nor aborted."""
        found = self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", [])
        return sorted(entry["Key"] for entry in found)


@dataclass(frozen=True)
class Container(Controlled):
    """A container of Azure's; ``store`` is obstore's and is not counted."""

    store: Any

    def put(self, key: str, data: bytes) -> None:
        self.store.put(key, data, use_multipart=False)

    def get(self, key: str) -> bytes:
        return bytes(self.store.get(key).bytes())

    def names(self, prefix: str = "") -> list[str]:
        return sorted(entry["path"] for page in self.store.list(prefix or None) for entry in page)


@dataclass(frozen=True)
class Website(Controlled):
    """A folder that a web server serves, with ranges and ETags."""

    folder: Path

    def put(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get(self, key: str) -> bytes:
        return (self.folder / key).read_bytes()

    def names(self, prefix: str = "") -> list[str]:
        found = (p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*"))
        return sorted(key for key in found if key.startswith(prefix))


class Emulators:
    """The stores of a session, each started when it is first asked for."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._ports: dict[str, list[int]] = {}
        self._fronts: dict[str, list[int]] = {}
        self._s3: Any = None
        self._folder = Path(tempfile.mkdtemp(prefix="tfrtool-emulators-"))

    def bucket(self) -> Bucket:
        """Return an empty bucket of S3's."""
        if not all(importlib.util.find_spec(name) for name in ("moto", "flask", "boto3")):
            raise MissingError("moto, flask or boto3 is not installed")
        direct, port, control = self._started("s3")
        name = f"bucket{uuid.uuid4().hex}"
        if self._s3 is None:
            import boto3

            self._s3 = boto3.client(
                "s3",
                endpoint_url=f"http://127.0.0.1:{direct}",
                region_name="us-east-1",
                aws_access_key_id="direct",
                aws_secret_access_key="direct",
            )
        self._s3.create_bucket(Bucket=name)
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIATESTSTESTSTESTST",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        return _known(Bucket(name, f"s3://{name}", environment, control, self._s3))

    def google(self) -> Bucket:
        """Return an empty bucket of Google's."""
        inner = self.bucket()
        port, control = self._front("gs", self._ports["s3"][0], "google")
        account = {
            "gcs_base_url": f"http://127.0.0.1:{port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        path = self._folder / "account.json"
        path.write_text(json.dumps(account), "utf-8")
        environment = {"GOOGLE_SERVICE_ACCOUNT": str(path), "GOOGLE_ALLOW_HTTP": "true"}
        return _known(Bucket(inner.name, f"gs://{inner.name}", environment, control, inner.client))

    def container(self) -> Container:
        """Return an empty container of Azure's."""
        program = str(AZURITE) if AZURITE.exists() else shutil.which("azurite-blob")
        if program is None or shutil.which("node") is None:
            raise MissingError("azurite is not installed: .ci/setup nightly installs it")
        from obstore.store import AzureStore

        direct, port, control = self._started("az", program)
        name = f"container{uuid.uuid4().hex}"
        _make_container(direct, name)
        environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        }
        store = AzureStore(
            name,
            account_name=_ACCOUNT,
            account_key=_ACCOUNT_KEY,
            endpoint=f"http://127.0.0.1:{direct}/{_ACCOUNT}",
            client_options={"allow_http": True},
        )
        return _known(Container(name, f"az://{name}", environment, control, store))

    def website(self) -> Website:
        """Return an empty folder that is served."""
        root = self._folder / "web"
        root.mkdir(exist_ok=True)
        _, port, control = self._started("http", str(root))
        name = f"folder{uuid.uuid4().hex}"
        (root / name).mkdir()
        url = f"http://127.0.0.1:{port}/{name}"
        return _known(Website(name, url, {}, control, root / name))

    def end(self) -> None:
        """End what was started."""
        for child in reversed(self._children):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()
            child.wait()
            child.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self, kind: str, *arguments: str) -> list[int]:
        """Return the ports of a store, of the proxy in front of it, and of that one's control."""
        if kind not in self._ports:
            (port,) = self._start(kind, *arguments)
            self._ports[kind] = [port, *self._front(kind, port)]
        return self._ports[kind]

    def _front(self, kind: str, port: int, *words: str) -> list[int]:
        if kind not in self._fronts:
            self._fronts[kind] = self._start("front", str(port), *words)
        return self._fronts[kind]

    def _start(self, *arguments: str) -> list[int]:
        with (self._folder / f"{arguments[0]}.log").open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.store_servers", *arguments],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the tests, which end it themselves
            )
        self._children.append(child)
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], 300)
        line = child.stdout.readline() if ready else b""
        if not line:
            log = (self._folder / f"{arguments[0]}.log").read_text("utf-8", "replace")
            raise RuntimeError(f"{arguments[0]} did not start: {log[-2000:]}")
        ports: list[int] = json.loads(line)
        return ports


def _known(store: Known) -> Known:
    """Let the proxy know the name of a store: it begins to count."""
    store.forget()
    return store


def _make_container(port: int, name: str) -> None:
    """Make a container by a signed request: obstore can't, and nothing else here speaks it."""
    date = formatdate(usegmt=True)
    headers_text = f"x-ms-date:{date}\nx-ms-version:2021-12-02"
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"{headers_text}\n{resource}"
    digest = hmac.digest(base64.b64decode(_ACCOUNT_KEY), text.encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2021-12-02",
        "Content-Length": "0",
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("PUT", f"/{_ACCOUNT}/{name}?restype=container", headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode("utf-8", "replace")
    finally:
        connection.close()
    if answer.status != 201:
        raise RuntimeError(f"no container was made: {answer.status} {body}")


def set_environment(environment: dict[str, str], monkeypatch: Any) -> None:
    """Set a process's environment, and take out what else could stand for credentials."""
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
