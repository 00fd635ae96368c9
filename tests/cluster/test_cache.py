"""The cache: it never goes back in time, whatever order watches, listings and our own writes arrive in."""

from typing import Any

from kubothek.cluster.cache.objects import Cache, trimmed_pod


def thing(name: str, version: int, uid: str = "u1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "managedFields": [1],
        },
        "spec": spec,
    }


def cache() -> Cache[str]:
    return Cache(lambda obj: f"{obj['metadata']['name']}@{obj['metadata']['resourceVersion']}")


def test_cache_keeps_newest_version_of_object() -> None:
    things = cache()
    assert things.put(thing("a", 9))
    assert not things.put(thing("a", 9))
    assert not things.put(thing("a", 8))
    assert things.put(thing("a", 10))
    assert things.model("ns", "a") == "a@10"


def test_cache_ignores_late_event_of_deleted_object() -> None:
    things = cache()
    things.put(thing("a", 9))
    removed = things.remove("ns", "a", "u1")
    assert removed is not None
    assert not things.put(thing("a", 12))
    assert things.get("ns", "a") is None


def test_cache_ignores_creation_that_arrives_after_deletion() -> None:
    things = cache()
    assert things.remove("ns", "a", "u1") is None
    assert not things.put(thing("a", 3))


def test_cache_keeps_recreated_object_after_deletion_of_predecessor() -> None:
    things = cache()
    things.put(thing("a", 20, uid="u2"))
    assert things.remove("ns", "a", "u1") is None
    assert things.model("ns", "a") == "a@20"


def test_cache_parses_object_once_on_first_access() -> None:
    calls: list[object] = []

    def parse(obj: object) -> int:
        calls.append(obj)
        return len(calls)

    things = Cache(parse)
    things.put(thing("a", 1))
    assert calls == []
    assert (things.model("ns", "a"), things.model("ns", "a"), things.models("ns")) == (1, 1, [1])


def test_cache_drops_fields_that_operator_never_reads() -> None:
    things = cache()
    noisy = thing("a", 1, image="x")
    noisy["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}
    things.put(noisy)
    kept = things.get("ns", "a")
    assert kept is not None
    assert "managedFields" not in kept["metadata"]
    assert kept["metadata"]["annotations"] == {"mine": "1"}
    assert trimmed_pod(thing("p", 1, nodeName="n1", containers=[{"name": "big"}]))["spec"] == {"nodeName": "n1"}


def test_cache_keeps_namespaces_separate() -> None:
    things = cache()
    other = thing("a", 5, uid="u5")
    other["metadata"]["namespace"] = "other"
    things.put(thing("a", 1))
    things.put(other)
    assert things.models("ns") == ["a@1"]
    assert len(things) == 2
    assert [obj["metadata"]["uid"] for obj in things.objects("other")] == ["u5"]
    assert len(list(things.objects())) == 2
