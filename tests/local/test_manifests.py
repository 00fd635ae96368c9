"""Reading manifests: everything that is wrong is told at once, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.local.documents import ManifestError
from kubothek.local.manifests import Key, Manifests, load
from tests.local.manifests import STORE, commit, dataset

SECRET = """\
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {AWS_ACCESS_KEY_ID: YQ==}
stringData: {AWS_SECRET_ACCESS_KEY: b}
"""


def loaded(directory: Path, text: str) -> Manifests:
    (directory / "m.yaml").write_text(text)
    return load([directory])


def problems(directory: Path, text: str) -> list[str]:
    (directory / "m.yaml").write_text(text)
    with pytest.raises(ManifestError) as error:
        load([directory / "m.yaml"])
    return [str(problem).removeprefix(f"{directory}/") for problem in error.value.problems]


def test_manifests_at_any_depth_are_loaded_in_apply_order(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "a.yaml").write_text(commit("one", "flights"))
    (tmp_path / "deep" / "b.yml").write_text(dataset("flights") + "---\n---\n# nothing\n")
    (tmp_path / "deep" / "deeper" / "c.json").write_text(
        '{"apiVersion": "kubothek.io/v1alpha1", "kind": "ObjectStore", "metadata": {"name": "lake"},'
        ' "spec": {"url": "s3://bucket"}}'
    )
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "d.yaml").write_text("[")

    assert [str(key) for key in load([tmp_path]).resources] == [
        "objectstore/lake",
        "dataset/flights",
        "commit/one",
    ]


def test_manifest_file_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(STORE)
    assert len(load([tmp_path, tmp_path / "m.yaml"]).resources) == 2


def test_manifest_problems_are_all_reported_with_lines(tmp_path: Path) -> None:
    text = (
        dataset("flights", "table: {partitionBy: [month]}")
        + commit("Bad_Name", "flights")
        + "---\napiVersion: kubothek.io/v1\nkind: Datasets\nmetadata: {name: settings}\n"
        + "---\n- no mapping\n"
    )
    assert problems(tmp_path, text) == [
        "m.yaml:7: Dataset flights: spec.table.partitionBy: is not a known field; did you mean partitionOn?",
        "m.yaml:11: Commit Bad_Name: metadata.name: 'Bad_Name' is not valid: use lower-case letters, digits, - and .",
        "m.yaml:19: Datasets settings: unknown kind kubothek.io/v1 Datasets; known kinds: ObjectStore, Engine, "
        "Cube, Dataset, Commit, Query, Compaction, Verification, GCPolicy, SkippingIndex, Repository, Sync of "
        "kubothek.io/v1alpha1, and Secret for credentials",
        "m.yaml:22: not a manifest: it has no fields apiVersion, kind, metadata",
    ]


def test_manifest_with_missing_field_names_line_of_parent(tmp_path: Path) -> None:
    text = "apiVersion: kubothek.io/v1alpha1\nkind: Dataset\nmetadata:\n  name: flights\nspec:\n  table: {}\n"
    assert problems(tmp_path, text) == ["m.yaml:6: Dataset flights: spec.storeRef: is required"]


def test_manifest_with_invalid_list_item_names_line_of_item(tmp_path: Path) -> None:
    text = dataset("d", "table:\n    schema:\n      - {name: a, type: int64}\n      - {name: b, type: intt}")
    [problem] = problems(tmp_path, text)
    assert problem.startswith("m.yaml:10: Dataset d: spec.table.schema[1].type: 'intt' is not valid: it must")


def test_manifest_that_does_not_parse_is_reported_with_earlier_problems(tmp_path: Path) -> None:
    text = dataset("flights", "nonsense: 1") + "---\na: [1\nb: 2\n"
    first, second = problems(tmp_path, text)
    assert first.startswith("m.yaml:7: Dataset flights: spec.nonsense: is not a known field")
    assert second.startswith("m.yaml:10: not YAML: ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe", "m.yaml: not UTF-8 text: invalid start byte at byte 0"),
        (b"a: 1\nb: 2\na: 3\n", "m.yaml:3: the field 'a' occurs twice"),
        (b"a: !!python/object:os.path {}\n", "m.yaml:1: not YAML: could not determine a constructor for the tag"),
    ],
)
def test_manifest_file_that_is_not_plain_yaml_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "m.yaml").write_bytes(content)
    with pytest.raises(ManifestError) as error:
        load([tmp_path])
    assert str(error.value.problems[0]).removeprefix(f"{tmp_path}/").startswith(told)


def _bomb() -> str:
    lines, last = ["  a: &a [x,x,x,x,x,x,x,x,x]"], "a"
    for name in "bcdefghijk":
        lines.append(f"  {name}: &{name} [{','.join([f'*{last}'] * 9)}]")
        last = name
    return "apiVersion: kubothek.io/v1alpha1\nkind: Dataset\nmetadata: {name: x}\nspec:\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (_bomb(), "m.yaml:6: YAML aliases are not supported: write the value out"),
        (
            "apiVersion: kubothek.io/v1alpha1\nkind: Dataset\nmetadata: &m {name: x, labels: *m}\nspec: {}\n",
            "m.yaml:3: YAML aliases are not supported: write the value out",
        ),
        ("[" * 100_000, "m.yaml:1: not YAML: nested deeper than 100 levels"),
        ("a: 1\nb: " + "1" * 5000, "m.yaml:2: not YAML: a number has more than 100 characters"),
        ("a: !!bool maybe", "m.yaml:1: not YAML: 'maybe' is not a valid bool"),
        ("a: !!int ''", "m.yaml:1: not YAML: '' is not a valid int"),
        ("a: .nan", "m.yaml:1: not YAML: .nan is not a number that JSON has"),
        ("1: a", "m.yaml:1: not YAML: the field name 1 is not text: quote it"),
        ("a: \n - ? [b]\n   : c", "m.yaml:2: not YAML: found unhashable key"),
        ("a: 1\nb: \x07", "m.yaml:2: not YAML: it has the control character U+0007"),
        ("#" * ((8 << 20) + 1), "m.yaml: larger than 8 MiB, the limit of a manifest file"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_manifest_with_hostile_yaml_is_refused_with_line(tmp_path: Path, text: str, told: str) -> None:
    assert problems(tmp_path, text)[0] == told


def test_manifest_with_multiline_kind_is_reported_on_one_line(tmp_path: Path) -> None:
    text = r'{apiVersion: kubothek.io/v1alpha1, kind: "SELECT\n1", metadata: {name: "a\nb"}}'
    (problem,) = problems(tmp_path, text)
    assert problem.startswith(r"m.yaml:1: SELECT 1 a b: kind: unknown kind 'SELECT\n1'")


def test_manifests_of_other_groups_are_skipped_and_named(tmp_path: Path) -> None:
    others = "---\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: &r [a]\nbases: *r\n"
    manifests = loaded(tmp_path, STORE + others)
    assert len(manifests.resources) == 2
    assert manifests.foreign == [f"Kustomization ({tmp_path}/m.yaml:12)"]


def test_manifest_list_items_are_separate_manifests(tmp_path: Path) -> None:
    items = '[{apiVersion: kubothek.io/v1alpha1, kind: ObjectStore, metadata: {name: lake}, spec: {ur: "file:a"}}]'
    assert problems(tmp_path, f"apiVersion: v1\nkind: List\nitems:\n  {items}\n") == [
        "m.yaml:4: ObjectStore lake: spec.url: is required",
        "m.yaml:4: ObjectStore lake: spec.ur: is not a known field; did you mean url?",
    ]


def test_manifest_date_is_read_as_text(tmp_path: Path) -> None:
    manifests = loaded(tmp_path, commit("2013-01-01", "flights"))
    assert [key.name for key in manifests.resources] == ["2013-01-01"]


def test_manifest_duplicate_is_refused_with_both_locations(tmp_path: Path) -> None:
    text = dataset("flights") + dataset("flights")
    assert problems(tmp_path, text) == [
        f"m.yaml:11: dataset/flights occurs twice; the other one is at {tmp_path}/m.yaml:2"
    ]


def test_manifest_with_same_name_in_other_namespace_is_separate_resource(tmp_path: Path) -> None:
    other = dataset("flights").replace("{name: flights}", "{name: flights, namespace: staging}")
    assert [str(key) for key in loaded(tmp_path, dataset("flights") + other).resources] == [
        "dataset/flights",
        "dataset/flights in namespace staging",
    ]


def test_manifest_namespace_with_path_traversal_is_refused(tmp_path: Path) -> None:
    text = dataset("flights").replace("{name: flights}", "{name: flights, namespace: ../..}")
    assert problems(tmp_path, text) == [
        "m.yaml:4: Dataset flights: metadata.namespace: '../..' is not a valid namespace"
    ]


def test_manifest_with_file_url_needs_no_volume_locally(tmp_path: Path) -> None:
    assert Key("ObjectStore", "default", "lake") in loaded(tmp_path, STORE).resources


def test_missing_path_and_empty_directory_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ManifestError) as error:
        load([tmp_path / "absent", tmp_path / "empty"])
    assert [str(problem) for problem in error.value.problems] == [
        f"{tmp_path}/absent: no such file or directory",
        f"{tmp_path}/empty: holds no manifest (.yaml, .yml, .json)",
    ]


def test_secret_manifest_is_read_for_credentials(tmp_path: Path) -> None:
    assert loaded(tmp_path, SECRET).secrets["default", "keys"] == {
        "AWS_ACCESS_KEY_ID": b"a",
        "AWS_SECRET_ACCESS_KEY": b"b",
    }


def test_secret_manifest_that_is_invalid_is_refused_without_its_values(tmp_path: Path) -> None:
    told = problems(
        tmp_path, SECRET.replace("YQ==", "'top secret'").replace("{AWS_SECRET", "{../../escape: b, AWS_SECRET")
    )
    assert (
        told[0]
        == "m.yaml:4: Secret: data.AWS_ACCESS_KEY_ID: Value error, is not base64; put plain text into stringData"
    )
    assert "stringData.../../escape" in told[1]
    assert not any("top secret" in line for line in told)
