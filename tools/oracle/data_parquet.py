"""Writes the Parquet goldens of engine/data and what their rows must read as.

    .venv/bin/python tools/oracle/data_parquet.py tests/golden/data/parquet

Files: <name>.parquet, and rows.json: {file: [row, ...]} where a row is the JSON text of its columns (json.dumps, nulls inside
structs left out), or {file: "unsupported"}. Needs pyarrow; the committed files were written by pyarrow 25.0.1.
"""
import datetime
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

FUNCTION = pa.struct([("name", pa.string()), ("arguments", pa.struct([("city", pa.string()), ("days", pa.int64()), ("tags", pa.list_(pa.string()))]))])
CALL = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", FUNCTION)])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(CALL)), ("name", pa.string())])
SMALL = pa.struct([("role", pa.string()), ("content", pa.string())])


def user(text):
    return {"role": "user", "content": text}


def called(**arguments):
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": arguments}}]}


CHATS = [
    [user("Hi"), {"role": "assistant", "content": "Hello"}],
    [user("Weather?"), called(city="Rome"), {"role": "tool", "name": "get_weather", "content": "sun"}, {"role": "assistant", "content": "Sunny."}],
    [user("And in two days?"), called(city="Oslo", days=2, tags=[]), {"role": "tool", "content": ""}, {"role": "assistant", "content": "Rain."}],
]
PLAIN = [[user("q%d" % i), {"role": "assistant", "content": "a%d" % i}] for i in range(7)]


def tables():
    """name → (table, options of write_table)"""
    # One struct type for all turns: every key that a turn does not have is stored as null.
    yield "struct_with_nulls", pa.table({"messages": pa.array(CHATS, pa.list_(MESSAGE))}), {}
    # Large types, dictionary encoding, several row groups and chunks, another order of columns.
    chunks = [pa.array(PLAIN[i:i + 3], pa.large_list(pa.struct([("content", pa.large_string()), ("role", pa.string())]))) for i in (0, 3, 6)]
    yield "large_types", pa.table({
        "embedding": pa.array([[0.5, 1.5]] * 7, pa.list_(pa.float32(), 2)),
        "messages": pa.chunked_array(chunks),
        "source": pa.array(["x", "y", "x", None, "x", "y", "z"]).dictionary_encode(),
    }), {"row_group_size": 2, "compression": "zstd"}
    yield "null_type_column", pa.table({"messages": pa.array(CHATS[:1] * 2, pa.list_(SMALL)), "tools": pa.nulls(2)}), {}
    yield "missing_completion", pa.table({"prompt": ["a", "b", "c"], "completion": ["x", None, "z"]}), {}
    yield "json_text", pa.table({"messages": [json.dumps(c, ensure_ascii=False) for c in CHATS]}), {}
    # Two files of one data set: the second has fewer fields.
    yield "part-0", pa.table({"messages": pa.array(CHATS[:2], pa.list_(MESSAGE))}), {}
    yield "part-1", pa.table({"messages": pa.array(CHATS[:1], pa.list_(SMALL))}), {}
    yield "no_rows", pa.table({"messages": pa.array([], pa.list_(SMALL))}), {}
    yield "null_and_empty_list", pa.table({"messages": pa.array([CHATS[0], None, []], pa.list_(SMALL))}), {}
    yield "integer_content", pa.table({"messages": pa.array([[{"role": "user", "content": 5}]], pa.list_(pa.struct([("role", pa.string()), ("content", pa.int64())])))}), {}
    # Every scalar type, at its limits.
    yield "scalars", pa.table({
        "bool": pa.array([True, None]),
        "int8": pa.array([-128, 127], pa.int8()), "int16": pa.array([-32768, 32767], pa.int16()),
        "int32": pa.array([-2**31, 2**31 - 1], pa.int32()), "int64": pa.array([-2**63, 2**63 - 1], pa.int64()),
        "uint8": pa.array([0, 255], pa.uint8()), "uint16": pa.array([0, 65535], pa.uint16()),
        "uint32": pa.array([0, 2**32 - 1], pa.uint32()), "uint64": pa.array([0, 2**64 - 1], pa.uint64()),
        "float": pa.array([0.5, -1.0], pa.float32()), "double": pa.array([0.1, 1e300]),
        "map": pa.array([[("a", 1), ("b", None)], []], pa.map_(pa.string(), pa.int64())),
        "nested": pa.array([[[1], [], None], None], pa.list_(pa.list_(pa.int32()))),
        "text": pa.array(["a\u2028\U0001F642\x00b", ""]),
    }), {}
    yield "timestamp", pa.table({"text": ["a"], "when": pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("us"))}), {}


def without_null_fields(value, arrow_type):
    if value is None:
        return None
    if pa.types.is_dictionary(arrow_type):
        return value
    if pa.types.is_struct(arrow_type):
        fields = {field.name: field.type for field in arrow_type}
        return {key: without_null_fields(item, fields[key]) for key, item in value.items() if item is not None}
    if pa.types.is_map(arrow_type):
        return dict(value)
    if isinstance(value, list):
        return [without_null_fields(item, arrow_type.value_type) for item in value]
    return value


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    expected = {}
    for name, table, options in tables():
        file = name + ".parquet"
        pq.write_table(table, os.path.join(folder, file), **options)
        read = pq.read_table(os.path.join(folder, file))
        if name == "timestamp":
            expected[file] = "unsupported"
            continue
        expected[file] = [json.dumps({field.name: without_null_fields(row[field.name], field.type) for field in read.schema}, ensure_ascii=False)
                          for row in read.to_pylist()]
    with open(os.path.join(folder, "rows.json"), "w", encoding="utf-8") as out:
        json.dump(expected, out, indent=1, ensure_ascii=True)
        out.write("\n")


if __name__ == "__main__":
    main()
