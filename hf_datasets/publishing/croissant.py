"""`croissant.json`: the dataset as JSON-LD for tools that read Croissant 1.0, list columns included.

The Hub makes such a file by itself, but leaves out columns that hold lists, such as a query's targets.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Audio, ClassLabel, Features, Image, LargeList, List, Value, Video

CROISSANT_FILE = "croissant.json"
SPLIT_FIELD = "split"
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
MEDIA = {Video: "sc:VideoObject", Image: "sc:ImageObject", Audio: "sc:AudioObject"}


def write_croissant(
    folder: Path,
    features: Mapping[str, Features],
    *,
    name: str,
    description: str,
    repo_id: str | None = None,
    license: str | None = None,
    citation: str | None = None,
    version: str | None = None,
) -> None:
    """Write `croissant.json` for the Parquet files of a published folder.

    Args:
        folder: The published folder.
        features: Configuration -> its columns; each becomes a record set `<configuration>` with fields
            `<configuration>/<column>`, and `<configuration>/split` where the files say it. Columns of structures other
            than media are left out, and the record set says so.
        name: The title of the dataset.
        description: A sentence on it.
        repo_id: `ORG/NAME` on the Hub, from which the files are then read, unless `mapping={"repo": FOLDER}` names a
            copy; None reads them from the folder of `croissant.json`.
        license: The identifier or address of the license.
        citation: BibTeX.
        version: Of the rows, `1.0.0`.
    """
    value: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": description,
        "license": license,
        "citeAs": citation,
        "version": version,
        "url": repo_id and f"https://huggingface.co/datasets/{repo_id}",
        "distribution": [
            *_repository(repo_id),
            *(_file_set(configuration, repo_id) for configuration in features),
        ],
        "recordSet": [_record_set(configuration, columns) for configuration, columns in features.items()],
    }
    value = {key: part for key, part in value.items() if part is not None}
    text = json.dumps(value, indent=2, ensure_ascii=False)
    (folder / CROISSANT_FILE).write_text(text + "\n", encoding="utf-8")


def _repository(repo_id: str | None) -> list[dict[str, Any]]:
    if repo_id is None:
        return []
    return [
        {
            "@type": "cr:FileObject",
            "@id": "repo",
            "name": "repo",
            "description": "The repository on the Hugging Face Hub.",
            "contentUrl": f"https://huggingface.co/datasets/{repo_id}",
            "encodingFormat": "git+https",
            "sha256": "https://github.com/mlcommons/croissant/issues/80",  # a repository has no hash of a file
        }
    ]


def _file_set(configuration: str, repo_id: str | None) -> dict[str, Any]:
    inside = {"containedIn": {"@id": "repo"}} if repo_id else {}
    return {
        "@type": "cr:FileSet",
        "@id": _files(configuration),
        **inside,
        "encodingFormat": "application/x-parquet",
        "includes": f"{configuration}/*.parquet",
    }


def _files(configuration: str) -> str:
    return f"parquet-files-of-{configuration}"


def _record_set(configuration: str, columns: Features) -> dict[str, Any]:
    fields = [field for name, feature in columns.items() if (field := _field(configuration, name, feature))]
    left_out = [name for name, feature in columns.items() if not _field(configuration, name, feature)]
    if SPLIT_FIELD not in columns:
        fields.append(
            {
                "@type": "cr:Field",
                "@id": f"{configuration}/{SPLIT_FIELD}",
                "dataType": "sc:Text",
                "source": {
                    "fileSet": {"@id": _files(configuration)},
                    "extract": {"fileProperty": "fullpath"},
                    "transform": {"regex": rf"{configuration}/(.+?)-\d+-of-\d+\.parquet$"},
                },
            }
        )
    description = f"The rows of the configuration {configuration}."
    if left_out:
        description += f" Without its columns {', '.join(left_out)}, whose type Croissant does not have."
    return {
        "@type": "cr:RecordSet",
        "@id": configuration,
        "name": configuration,
        "description": description,
        "field": fields,
    }


def _field(configuration: str, name: str, feature: Any) -> dict[str, Any] | None:
    repeated = isinstance(feature, List | LargeList)
    item = feature.feature if repeated else feature
    data_type = MEDIA.get(type(item)) if not repeated else None
    media = data_type is not None
    if isinstance(item, ClassLabel):
        data_type = "sc:Integer"
    elif isinstance(item, Value):
        data_type = _data_type(item.pa_type)
    if data_type is None:
        return None
    labels = [f"{number} is {label}" for number, label in enumerate(getattr(item, "names", ()))]
    return {
        "@type": "cr:Field",
        "@id": f"{configuration}/{name}",
        "description": ": ".join([f"The column {name}", *([", ".join(labels)] if labels else [])]) + ".",
        "dataType": data_type,
        **({"repeated": True} if repeated else {}),
        "source": {
            "fileSet": {"@id": _files(configuration)},
            "extract": {"column": name},
            **({"transform": {"jsonPath": "bytes"}} if media else {}),
        },
    }


def _data_type(kind: pa.DataType) -> str | None:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "sc:Text"
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else None
