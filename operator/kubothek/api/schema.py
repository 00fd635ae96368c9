"""Generation of Kubernetes' structural schemas from pydantic models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from kubothek.api.rules import UniqueBy, field_rules

Schema = dict[str, Any]

_DROPPED = ("title", "additionalProperties", "const", "$defs")
"""Keys of pydantic that a structural schema must not have; ``additionalProperties`` is kept if it describes a map."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model with defaults, limits and CEL rules, without references or null unions.

    Unknown fields need no entry: the API server prunes them, and refuses them under strict field validation.
    """
    schema = model.model_json_schema(by_alias=True)
    return _Translation(schema.get("$defs", {}), _models(model)).translate(schema)


def _models(root: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return all models in ``root`` by name; names are unique among our models."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[Any] = [root]
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation.__name__ in found:
                continue
            found[annotation.__name__] = annotation
            waiting.extend(info.annotation for info in annotation.model_fields.values())
        else:
            waiting.extend(getattr(annotation, "__args__", ()))
    return found


class _Translation:
    def __init__(self, definitions: dict[str, Schema], models: dict[str, type[BaseModel]]) -> None:
        self.definitions = definitions
        self.models = models

    def translate(self, given: Schema) -> Schema:
        schema = self._without_null(self._resolved(given))
        name = schema.get("title", "")
        translated = {key: value for key, value in schema.items() if key not in _DROPPED}
        if "description" in translated:
            translated["description"] = " ".join(translated["description"].replace("``", "`").split())
        if "const" in schema:
            translated |= {"type": "string", "enum": [schema["const"]]}
        if isinstance(schema.get("additionalProperties"), dict):
            translated["additionalProperties"] = self.translate(schema["additionalProperties"])
        if "items" in schema:
            translated["items"] = self.translate(schema["items"])
            translated.setdefault("x-kubernetes-list-type", "atomic")
        if "properties" in schema:
            translated["properties"] = {key: self.translate(value) for key, value in schema["properties"].items()}
            if name in self.models:
                self._add_marks(self.models[name], translated)
        default = _pruned(translated.pop("default", None))
        return translated | ({} if _says_nothing(default) else {"default": default})

    def _add_marks(self, model: type[BaseModel], schema: Schema) -> None:
        for name, info in model.model_fields.items():
            for mark in info.metadata:
                if isinstance(mark, UniqueBy):
                    schema["properties"][info.alias or name] |= {
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": [mark.key],
                    }
        rules = _rules(model)
        if rules:
            schema["x-kubernetes-validations"] = rules

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        target = self.definitions[schema["$ref"].removeprefix("#/$defs/")]
        return target | {key: value for key, value in schema.items() if key != "$ref"}

    def _without_null(self, schema: Schema) -> Schema:
        """Return the schema of X for ``X | None``: a manifest omits the field instead of a null."""
        members = [member for member in schema.get("anyOf", ()) if member != {"type": "null"}]
        if len(members) != 1:
            return schema
        outside = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
        return self._without_null(self._resolved(members[0])) | outside


def _says_nothing(default: object) -> bool:
    """Return whether a default is null or empty, which equals absence."""
    return default is None or default in ([], {}, ())


def _pruned(default: Any) -> Any:
    """Return a default without empty parts.

    It has nested defaults, as the API server checks the rules before it fills these in.
    """
    if isinstance(default, dict):
        kept = {key: _pruned(value) for key, value in default.items()}
        return {key: value for key, value in kept.items() if not _says_nothing(value)}
    return default


def _rules(model: type[BaseModel]) -> list[Schema]:
    stated = [rule.render() for rule in (*getattr(model, "rules", ()), *getattr(model, "transitions", ()))]
    immutable: dict[tuple[str, str], list[str]] = {}
    for _, rule in field_rules(model):
        immutable.setdefault((rule.message, "FieldValueForbidden"), []).append(rule.cel)
    return stated + [
        {
            "rule": " && ".join(f"({cel})" for cel in cels) if len(cels) > 1 else cels[0],
            "message": message,
            "reason": reason,
        }
        for (message, reason), cels in immutable.items()
    ]
