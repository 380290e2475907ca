"""Goldens of the chat template engine, from Python's jinja2 set up as `transformers` sets it up.

    python tools/oracle/template.py constructs            # tests/golden/template/constructs.json
    python tools/oracle/template.py published FOLDER      # tests/golden/template/published.json; FOLDER has *.jinja
    python tools/oracle/template.py show FOLDER TEMPLATE CONVERSATION [--prompt]   # one expected text, to look at

Needs jinja2 3.1.
"""

import argparse
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from template_constructs import CONSTRUCTS
from template_conversations import CONVERSATIONS

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "template"
NOW = datetime.datetime(2024, 7, 26, 9, 5, 7)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


class Generation(jinja2.ext.Extension):
    """{% generation %}: a block tag that writes its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENVIRONMENT = environment()


def render(source, context):
    """(text, None) or (None, the error's type)."""
    try:
        return ENVIRONMENT.from_string(source).render(**context), None
    except Exception as error:  # what a template may raise has no common base
        return None, type(error).__name__


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def chat_context(conversation, add_generation_prompt):
    return {
        "messages": conversation["messages"],
        "tools": conversation.get("tools"),
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        **SPECIAL_TOKENS,
        **conversation.get("variables", {}),
    }


def write_rows(path, command, head, name, rows):
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    head = json.dumps({"made_by": command, "jinja2": jinja2.__version__, **head}, ensure_ascii=False)[:-1]
    path.write_text(f'{head}, "{name}": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{path}: {len(rows)} rows")


def constructs():
    rows = []
    for row in CONSTRUCTS:
        source, context = (row, {}) if isinstance(row, str) else row
        text, error = render(source, context)
        out = {"template": source}
        if context:
            out["context"] = context
        out.update({"error": error} if error else {"expected": text})
        rows.append(out)
    write_rows(GOLDEN / "constructs.json", "tools/oracle/template.py constructs", {}, "cases", rows)


def published(folder):
    """One row a template; one entry a conversation: without and with the generation prompt, each an error's type or
    "bytes:hash" of the text."""
    rows = []
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        renderings = []
        for conversation in CONVERSATIONS:
            pair = []
            for add_generation_prompt in (False, True):
                text, error = render(source, chat_context(conversation, add_generation_prompt))
                data = (text or "").encode()
                pair.append(error or f"{len(data)}:{fnv1a(data)}")
            renderings.append(pair)
        rows.append({"template": path.stem, "renderings": renderings})
    head = {
        "now": NOW.isoformat(),
        "special_tokens": SPECIAL_TOKENS,
        "conversations": CONVERSATIONS,
    }
    write_rows(GOLDEN / "published.json", "tools/oracle/template.py published FOLDER", head, "templates", rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["constructs", "published", "show"])
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("template", nargs="?")
    parser.add_argument("conversation", nargs="?")
    parser.add_argument("--prompt", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "constructs":
        constructs()
    elif arguments.what == "published":
        published(arguments.folder)
    else:
        source = (arguments.folder / f"{arguments.template}.jinja").read_text(encoding="utf-8")
        conversation = next(c for c in CONVERSATIONS if c["name"] == arguments.conversation)
        print(*render(source, chat_context(conversation, arguments.prompt)))


if __name__ == "__main__":
    main()
