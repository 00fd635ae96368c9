"""One table of manifests for both validators: the API server's CEL and our Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

LONG = "n" * 41


@dataclass(frozen=True)
class Case:
    """A manifest and what becomes of it: ``refusal`` is part of the error, None if it is accepted.

    Schema errors have different words in the two validators; then ``refusal`` is the path, which both name.
    """

    name: str
    kind: str
    spec: Json
    refusal: str | None = None
    resource: str = "a-name"
    cluster_only: bool = False

    def manifest(self, resource: str | None = None) -> Json:
        metadata = {"name": resource or self.resource}
        return {"apiVersion": "kubothek.io/v1alpha1", "kind": self.kind, "metadata": metadata, "spec": self.spec}


@dataclass(frozen=True)
class Edit:
    """A change of a spec, both sides valid by themselves."""

    name: str
    kind: str
    old: Json
    new: Json
    refusal: str | None = None

    def manifest(self, spec: Json, resource: str = "a-name") -> Json:
        return Case(self.name, self.kind, spec).manifest(resource)


def store(**spec: Any) -> Json:
    return {"url": "s3://lake/warehouse"} | spec


def dataset(**spec: Any) -> Json:
    return {"storeRef": {"name": "lake"}} | spec


def table(**spec: Any) -> Json:
    return dataset(table=spec)


def commit(source: Json | None = None, **spec: Any) -> Json:
    return {"datasetRef": {"name": "flights"}, "operation": "Append", "source": source or files()} | spec


def files(**source: Any) -> Json:
    return {"paths": ["in/flights.csv"], "format": "CSV"} | source


def column(name: str, type_: str = "int64") -> Json:
    return {"name": name, "type": type_}


FILE_STORE = {"url": "file:///data", "volume": {"claimName": "data"}}

CASES = [
    # names
    Case("a short name", "Engine", {}),
    Case("the longest name", "Engine", {}, resource="n" * 40),
    Case("a name that is too long for pods", "Engine", {}, "longer than 40 characters", resource=LONG),
    Case("a name with a dot", "Engine", {}, "the name has a dot", resource="a.b"),
    # ObjectStore
    Case("a bucket", "ObjectStore", {"url": "s3://lake"}),
    Case(
        "a bucket with all that belongs to it",
        "ObjectStore",
        store(endpoint="http://minio:9000", region="eu-1", credentialsSecretRef={"name": "s"}),
    ),
    Case("a volume", "ObjectStore", FILE_STORE),
    Case("no url", "ObjectStore", {}, "spec.url"),
    Case("a url of another service", "ObjectStore", {"url": "gs://lake"}, "spec.url"),
    Case("a bucket name that S3 refuses", "ObjectStore", {"url": "s3://Lake"}, "spec.url"),
    Case(
        "a file store without a volume",
        "ObjectStore",
        {"url": "file:///data"},
        "spec.volume.claimName",
        cluster_only=True,
    ),
    Case(
        "a relative file store",
        "ObjectStore",
        {"url": "file:data"},
        "in a cluster a file store needs",
        cluster_only=True,
    ),
    Case(
        "a volume for a bucket",
        "ObjectStore",
        store(volume={"claimName": "data"}),
        "spec.volume is for file:// stores only",
    ),
    Case(
        "credentials for a volume",
        "ObjectStore",
        FILE_STORE | {"credentialsSecretRef": {"name": "s"}},
        "are for s3:// stores only",
    ),
    Case(
        "an endpoint for a volume",
        "ObjectStore",
        FILE_STORE | {"endpoint": "http://minio"},
        "are for s3:// stores only",
    ),
    Case("an endpoint that is no url", "ObjectStore", store(endpoint="minio:9000"), "spec.endpoint"),
    Case("an interval in hours and minutes", "ObjectStore", store(interval="1h30m")),
    Case(
        "an interval that starts pods all the time",
        "ObjectStore",
        store(interval="9s"),
        "spec.interval is shorter than 10s",
    ),
    Case("an interval without a unit", "ObjectStore", store(interval="600"), "spec.interval"),
    Case("an unknown field", "ObjectStore", store(bucket="lake"), "bucket"),
    Case("a text for a truth value", "ObjectStore", store(suspend="true"), "spec.suspend"),
    # Engine
    Case(
        "an engine with everything",
        "Engine",
        {
            "image": "registry.example/kubothek:1",
            "imagePullPolicy": "Always",
            "imagePullSecrets": [{"name": "r"}],
            "serviceAccountName": "jobs",
            "driver": {"cores": 2, "memory": "4Gi"},
            "executor": {"instances": 8, "cores": 4, "memory": "16Gi"},
            "sparkConf": {"spark.sql.shuffle.partitions": "8"},
            "sparkFrom": 1048576,
            "podTemplate": {"driver": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
            "retry": {"limit": 0, "backoff": {"initial": "1s", "max": "1s"}},
            "deadlines": {"start": "1m", "total": "24h"},
        },
    ),
    Case("a pull policy that is none", "Engine", {"imagePullPolicy": "Sometimes"}, "spec.imagePullPolicy"),
    Case(
        "a pull secret twice",
        "Engine",
        {"imagePullSecrets": [{"name": "r"}, {"name": "r"}]},
        "spec.imagePullSecrets[1]",
    ),
    Case("memory in Spark's notation", "Engine", {"driver": {"memory": "4g"}}, "spec.driver.memory"),
    Case("memory that Spark cannot start with", "Engine", {"executor": {"memory": "100Mi"}}, "must be at least 512Mi"),
    Case("memory as a number", "Engine", {"executor": {"memory": 1073741824}}),
    Case("too few bytes as a number", "Engine", {"driver": {"memory": 1024}}, "must be at least 512Mi"),
    Case("no cores", "Engine", {"driver": {"cores": 0}}, "spec.driver.cores"),
    Case("too many executors", "Engine", {"executor": {"instances": 1001}}, "spec.executor.instances"),
    Case(
        "a key that is not Spark's", "Engine", {"sparkConf": {"fs.s3a.access.key": "x"}}, "does not begin with 'spark.'"
    ),
    Case("another master", "Engine", {"sparkConf": {"spark.master": "local"}}, "only the operator may"),
    Case(
        "another image by conf",
        "Engine",
        {"sparkConf": {"spark.kubernetes.container.image": "x"}},
        "only the operator may",
    ),
    Case("a jar", "Engine", {"sparkConf": {"spark.jars": "http://evil/x.jar"}}, "only the operator may"),
    Case(
        "a Java agent",
        "Engine",
        {"sparkConf": {"spark.driver.extraJavaOptions": "-javaagent:x"}},
        "only the operator may",
    ),
    Case(
        "credentials in conf", "Engine", {"sparkConf": {"spark.hadoop.fs.s3a.secret.key": "x"}}, "only the operator may"
    ),
    Case("a conf value that is no text", "Engine", {"sparkConf": {"spark.a": 1}}, "spec.sparkConf"),
    Case(
        "a backoff that shrinks",
        "Engine",
        {"retry": {"backoff": {"initial": "1h", "max": "5m"}}},
        "is longer than retry.backoff.max",
    ),
    Case(
        "a backoff that ends before the default begins",
        "Engine",
        {"retry": {"backoff": {"max": "1s"}}},
        "is longer than retry.backoff.max",
    ),
    Case("too many retries", "Engine", {"retry": {"limit": 21}}, "spec.retry.limit"),
    # Dataset
    Case("a dataset", "Dataset", dataset()),
    Case(
        "a dataset with everything",
        "Dataset",
        {
            "uuid": "Flights_2013",
            "storeRef": {"name": "lake"},
            "engineRef": {"name": "big"},
            "deletionPolicy": "Delete",
            "restore": True,
            "suspend": True,
            "table": {
                "partitionOn": ["year", "month"],
                "targetFileSize": "256Mi",
                "compression": "SNAPPY",
                "schema": [
                    column("year"),
                    column("month"),
                    column("fare", "decimal128(10, 2)"),
                    column("at", "timestamp[us]") | {"nullable": False},
                ],
            },
        },
    ),
    Case("a dataset without a store", "Dataset", {}, "spec.storeRef"),
    Case("a reference without a name", "Dataset", {"storeRef": {}}, "spec.storeRef.name"),
    Case("a reference to a namespace", "Dataset", {"storeRef": {"name": "lake", "namespace": "other"}}, "namespace"),
    Case("a uuid with a slash", "Dataset", dataset(uuid="a/b"), "spec.uuid"),
    Case("a uuid of a cube", "Dataset", dataset(uuid="++geo"), "spec.uuid begins with '++'"),
    Case("a uuid of a cube's member", "Dataset", dataset(uuid="geo++seed")),
    Case("an empty uuid", "Dataset", dataset(uuid=""), "spec.uuid"),
    Case("no partitions", "Dataset", table(partitionOn=[])),
    Case(
        "a partition column twice", "Dataset", table(partitionOn=["a", "a"]), "table.partitionOn names a column twice"
    ),
    Case("a partition column with a slash", "Dataset", table(partitionOn=["a/b"]), "spec.table.partitionOn[0]"),
    Case(
        "too many partition columns",
        "Dataset",
        table(partitionOn=[f"c{n}" for n in range(17)]),
        "spec.table.partitionOn",
    ),
    Case(
        "a partition column that the schema lacks",
        "Dataset",
        table(partitionOn=["a"], schema=[column("b")]),
        "that table.schema does not have",
    ),
    Case(
        "a schema of partition columns only",
        "Dataset",
        table(partitionOn=["a"], schema=[column("a")]),
        "no column besides those of table.partitionOn",
    ),
    Case("a column twice", "Dataset", table(schema=[column("a"), column("a", "string")]), "spec.table.schema[1]"),
    Case(
        "the widest schema",
        "Dataset",
        table(
            partitionOn=[f"column-{n}" for n in range(984, 1000)], schema=[column(f"column-{n}") for n in range(1000)]
        ),
    ),
    Case("a type that is none", "Dataset", table(schema=[column("a", "integer")]), "spec.table.schema[0].type"),
    Case("an empty schema", "Dataset", table(schema=[]), "spec.table.schema"),
    Case("tiny files", "Dataset", table(targetFileSize="1Ki"), "table.targetFileSize must be between"),
    Case("huge files", "Dataset", table(targetFileSize="5Gi"), "table.targetFileSize must be between"),
    Case("a compression that is none", "Dataset", table(compression="LZMA"), "spec.table.compression"),
    Case("a policy that is none", "Dataset", dataset(deletionPolicy="Orphan"), "spec.deletionPolicy"),
    # Commit
    Case("a commit", "Commit", commit()),
    Case(
        "a commit with everything",
        "Commit",
        commit(
            files(
                storeRef={"name": "landing"},
                compression="Gzip",
                schema=[column("a")],
                csv={"delimiter": ";", "quote": "'", "header": False, "nullValues": ["-"]},
            ),
            id="flights 2013".replace(" ", "/"),
            dependsOn=[{"name": "other"}],
            onConflict="Retry",
            engineRef={"name": "big"},
            suspend=True,
            retryLimit=0,
        ),
    ),
    Case("a commit from the web", "Commit", commit({"urls": ["https://example.com/a.csv.gz"], "format": "CSV"})),
    Case(
        "a commit from this machine",
        "Commit",
        commit({"urls": ["file:///etc/passwd"], "format": "CSV"}),
        "a cluster reads no file: urls",
        cluster_only=True,
    ),
    Case("a commit without an operation", "Commit", {"datasetRef": {"name": "d"}, "source": files()}, "spec.operation"),
    Case("an operation that is none yet", "Commit", commit(operation="Upsert"), "spec.operation"),
    Case("no files at all", "Commit", commit({"format": "CSV"}), "set exactly one of them"),
    Case("paths and urls", "Commit", commit(files(urls=["http://x/a"])), "set exactly one of them"),
    Case("an empty list of paths", "Commit", commit(files(paths=[])), "spec.source.paths"),
    Case(
        "a store for urls",
        "Commit",
        commit({"urls": ["http://x/a"], "storeRef": {"name": "l"}, "format": "CSV"}),
        "source.storeRef goes with source.paths",
    ),
    Case("a way out of the store", "Commit", commit(files(paths=["ok.csv", "a/../../b"])), "source.paths has a '..'"),
    Case("two dots in a name", "Commit", commit(files(paths=["a..b/c..csv"]))),
    Case("an absolute path", "Commit", commit(files(paths=["/etc/passwd"])), "spec.source.paths[0]"),
    Case("the most paths", "Commit", commit(files(paths=[f"{'d' * 100}/{n}" for n in range(1000)]))),
    Case("too many paths", "Commit", commit(files(paths=[str(n) for n in range(1001)])), "spec.source.paths"),
    Case("a url of another scheme", "Commit", commit({"urls": ["ftp://x/a"], "format": "CSV"}), "spec.source.urls[0]"),
    Case("a format in the wrong case", "Commit", commit(files(format="csv")), "spec.source.format"),
    Case(
        "CSV options for Parquet",
        "Commit",
        commit(files(format="Parquet", csv={"header": True})),
        "source.csv goes with format: CSV",
    ),
    Case(
        "gzipped Parquet",
        "Commit",
        commit(files(format="Parquet", compression="Gzip")),
        "a Parquet file is compressed inside",
    ),
    Case(
        "a delimiter of two characters", "Commit", commit(files(csv={"delimiter": "::"})), "spec.source.csv.delimiter"
    ),
    Case("an id with a space", "Commit", commit(id="a b"), "spec.id"),
    Case("an empty id", "Commit", commit(id=""), "spec.id"),
    Case(
        "a commit that waits for itself",
        "Commit",
        commit(dependsOn=[{"name": "a-name"}]),
        "spec.dependsOn names the Commit itself",
    ),
    Case("a dependency twice", "Commit", commit(dependsOn=[{"name": "b"}, {"name": "b"}]), "spec.dependsOn[1]"),
    Case("a negative limit", "Commit", commit(retryLimit=-1), "spec.retryLimit"),
]

FIXED = "a Commit is one change and cannot be edited"

EDITS = [
    Edit("another url", "ObjectStore", store(), store(url="s3://other"), "spec.url cannot change"),
    Edit("another endpoint", "ObjectStore", store(), store(endpoint="https://new.example")),
    Edit("a larger engine", "Engine", {}, {"executor": {"instances": 9}}),
    Edit("a uuid that says what was", "Dataset", dataset(), dataset(uuid="a-name")),
    Edit("another uuid", "Dataset", dataset(uuid="a"), dataset(uuid="b"), "spec.uuid cannot change"),
    Edit("a uuid where there was none", "Dataset", dataset(), dataset(uuid="b"), "spec.uuid cannot change"),
    Edit("no uuid where there was one", "Dataset", dataset(uuid="b"), dataset(), "spec.uuid cannot change"),
    Edit("another store", "Dataset", dataset(), dataset(storeRef={"name": "other"}), "spec.storeRef cannot change"),
    Edit(
        "other partitions",
        "Dataset",
        table(partitionOn=["a"]),
        table(partitionOn=["b"]),
        "table.partitionOn cannot change",
    ),
    Edit(
        "partitions where there were none",
        "Dataset",
        dataset(),
        table(partitionOn=["b"]),
        "table.partitionOn cannot change",
    ),
    Edit(
        "no partitions where there were some",
        "Dataset",
        table(partitionOn=["a"]),
        dataset(),
        "table.partitionOn cannot change",
    ),
    Edit("no partitions, said twice", "Dataset", dataset(), table(partitionOn=[])),
    Edit("other file sizes", "Dataset", table(partitionOn=["a"]), table(partitionOn=["a"], targetFileSize="1Gi")),
    Edit("a longer schema", "Dataset", table(schema=[column("a")]), table(schema=[column("a"), column("b")])),
    Edit("a suspended commit", "Commit", commit(), commit(suspend=True)),
    Edit("more retries", "Commit", commit(), commit(retryLimit=9)),
    Edit("another dataset", "Commit", commit(), commit(datasetRef={"name": "other"}), FIXED),
    Edit("another file", "Commit", commit(), commit(files(paths=["b"])), FIXED),
    Edit("a store for the source", "Commit", commit(), commit(files(storeRef={"name": "b"})), FIXED),
    Edit("an id where there was none", "Commit", commit(), commit(id="a"), FIXED),
    Edit("no id where there was one", "Commit", commit(id="a"), commit(), FIXED),
    Edit("a dependency where there was none", "Commit", commit(), commit(dependsOn=[{"name": "b"}]), FIXED),
    Edit("no dependency where there was one", "Commit", commit(dependsOn=[{"name": "b"}]), commit(), FIXED),
    Edit("another behaviour on conflict", "Commit", commit(), commit(onConflict="Retry"), FIXED),
    Edit("another engine", "Commit", commit(), commit(engineRef={"name": "b"}), FIXED),
    Edit("the default, spelled out", "Commit", commit(), commit(onConflict="Fail", dependsOn=[])),
]
