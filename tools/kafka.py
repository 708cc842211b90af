"""Kafka for tests: Apache Kafka from Maven's artifacts where they can be had, else librdkafka's mock cluster."""

from __future__ import annotations

import base64
import fcntl
import json
import re
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.binaries import account, open_to_others
from tools.environment import HOME, ROOT, say
from tools.kafka_mock import library
from tools.places import free_port, new_log
from tools.processes import bound
from tools.server_process import PATIENCE, ChildProcess, ServerFailed, ServerProcess

NAME = "kafka"
VERSION = "4.1.1"
OWN = "POSTLUDE_TEST_KAFKA"
"""The user's own, as host:port; it is used but neither stopped nor frozen."""
PLACE = HOME / NAME / VERSION
FETCHING = 240.0
"""Seconds for Maven; 45 files, 43 MB."""
JAVA_NEEDED = 17
ARCHIVE = "classes.jsa"
JAVA = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>postlude.dev</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=4
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
"""


@dataclass(frozen=True)
class Jars:
    """Apache Kafka, ready to be run."""

    java: Path
    folder: Path


def available() -> Jars:
    """What was fetched before. Raises LookupError with the reason."""
    java = _java()
    if not (PLACE / "libs").exists():
        raise LookupError("Apache Kafka was not fetched")
    return Jars(java, PLACE / "libs")


def fetch() -> Jars:
    """From Maven, once, into .dev/kafka. Raises LookupError with the reason."""
    _java()
    if shutil.which("mvn") is None:
        raise LookupError("there is no mvn to fetch Apache Kafka with")
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PLACE / "libs").exists():
            _fetch(PLACE)
            try:
                _train(available())
            except ServerFailed as error:
                shutil.rmtree(PLACE / "libs")
                raise LookupError(f"Apache Kafka does not run here: {error}") from error
    return available()


@cache
def _java() -> Path:
    found = shutil.which("java")
    if found is None:
        raise LookupError("there is no java to run Apache Kafka with")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_NEEDED:
        raise LookupError(f"Apache Kafka {VERSION} needs Java {JAVA_NEEDED}")
    return Path(found)


def _train(jars: Jars) -> None:
    """Let a server write down the classes it has loaded: those that follow start in a fraction of the time."""
    with KafkaServer(jars, is_training=True) as server:
        server.stop()
        written = server.place / ARCHIVE
        if written.exists():
            shutil.move(written, PLACE / ARCHIVE)


def _fetch(place: Path) -> None:
    say(f"fetching Apache Kafka {VERSION} with Maven (43 MB, once)")
    whole, part = place / "libs", place / "part"
    shutil.rmtree(part, ignore_errors=True)
    (place / "pom.xml").write_text(POM.format(version=VERSION))
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
    command += ["-Dmaven.wagon.http.connectionTimeout=10000", "-Dmaven.wagon.rto=30000"]
    try:
        done = subprocess.run(
            [*command, f"-Dmaven.repo.local={place / 'repository'}"],
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCHING,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LookupError(f"Maven came to no end in {FETCHING:g} s") from None
    finally:
        shutil.rmtree(place / "repository", ignore_errors=True)
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise LookupError(f"Maven cannot fetch Apache Kafka: {said[0][:200] if said else done.returncode}")
    part.rename(whole)  # at once: what is there is whole


class KafkaServer(ServerProcess):
    """One node of Apache Kafka, broker and controller."""

    name = f"Apache Kafka {VERSION}"

    def __init__(self, jars: Jars, *, is_training: bool = False) -> None:
        super().__init__(NAME)
        self._java = jars.java
        self._jars = jars.folder
        archive = jars.folder.parent / ARCHIVE
        self._options = [*JAVA, f"-XX:SharedArchiveFile={archive}"] if archive.exists() else list(JAVA)
        if account() is not None and not open_to_others(jars.folder):
            self._jars = Path(shutil.copytree(jars.folder, self.place / "libs"))
            self._options = list(JAVA)  # an archive is bound to the paths it was made of
        if is_training:
            self._options.append(f"-XX:ArchiveClassesAtExit={ARCHIVE}")

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    def _arrange(self) -> None:
        data = self.place / "data"
        settings = PROPERTIES.format(port=self.port, controller=free_port(), data=data)
        (self.place / "server.properties").write_text(settings)
        if data.exists():
            return
        # Not beginning with a dash, which would be taken for an option.
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        tool = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", "server.properties")
        if self._run(*tool).wait(PATIENCE) != 0:
            raise ServerFailed(self._explain("cannot be set up"))

    def _spawn(self) -> subprocess.Popen[bytes]:
        return self._run("kafka.Kafka", "server.properties")

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        classes = ":".join(map(str, sorted(self._jars.glob("*.jar"))))
        return self._popen(self._java, *self._options, "-cp", classes, *arguments)


class KafkaMock(ChildProcess):
    """librdkafka's mock cluster in a process of its own. It can be told to fail; it forgets everything when it ends."""

    name = "librdkafka's mock cluster of Kafka"

    def __init__(self) -> None:
        library()
        self.url = ""
        self.log = new_log("kafka-mock")

    def start(self) -> None:
        if self._process is not None:
            self.tell("up")
            return
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                bound([sys.executable, "-m", "tools.kafka_mock"], death_signal="KILL"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=ROOT,
                start_new_session=True,
            )
        self.url = f"kafka://{self._answer()}"

    def stop(self) -> None:
        """Down, not over: it keeps what it has in memory."""
        self.tell("down")

    kill = stop

    def tell(self, name: str, *arguments: object) -> None:
        """One of the methods of `tools.kafka_mock.Mock`."""
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        self._process.stdin.flush()
        self._answer()

    def remove(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _answer(self) -> str:
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        if not (line := self._process.stdout.readline().decode().strip()):
            raise ServerFailed(self._explain("ended"))
        return line
