"""Conversations that the published templates are rendered with."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Weather of a "city" & <region> — today\'s',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name", "enum": ["Zürich", "東京"]},
                "days": {"type": "integer", "default": 2, "nullable": True},
                "opts": {
                    "type": "object",
                    "properties": {"units": {"type": "string"}, "Alert": {"type": "boolean"}},
                    "required": ["units"],
                },
                "tags": {"type": "array", "items": {"type": "string"}},
                "points": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                },
            },
            "required": ["city"],
        },
        "response": {"type": "object", "description": "What it is like"},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": ["number", "null"]}},
            "required": ["a", "b"],
        },
    },
}
EMPTY = {"type": "function", "function": {"name": "ping", "description": "", "parameters": {}}}


def system(content):
    return {"role": "system", "content": content}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, call_id="abcdefgh1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, call_id="abcdefgh1", **more):
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


ARGUMENTS = {"city": "Zürich", "days": 2, "opts": {"Units": None, "alert": [True, 1.0, -0.5, 1e-7]}}
TEXT_PARTS = [{"type": "text", "text": " first "}, {"type": "image"}, {"type": "text", "text": "second"}]

TOOL_TURN = [
    user("Weather?"),
    assistant("", tool_calls=[call("get_weather", ARGUMENTS)]),
    tool('{"sky": "clear"}', name="get_weather"),
]

CONVERSATIONS = [
    {"name": "one_turn", "messages": [user("2+2?"), assistant("4")]},
    {"name": "user_only", "messages": [user("Hi  there\n\n")]},
    {"name": "no_messages", "messages": []},
    {"name": "system_only", "messages": [system("Be brief.")]},
    {"name": "system", "messages": [system(" You help. "), user("Hi"), assistant("Hello!")]},
    {
        "name": "multi_turn",
        "messages": [system("S"), user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f")],
    },
    {"name": "open_multi_turn", "messages": [user("a"), assistant("b"), user("c")]},
    {"name": "two_system_turns", "messages": [system("S"), user("a"), system("T"), assistant("b")]},
    {"name": "system_later", "messages": [user("a"), assistant("b"), system("T"), user("c"), assistant("d")]},
    {"name": "two_users", "messages": [user("a"), user("b"), assistant("c")]},
    {"name": "two_assistants", "messages": [user("a"), assistant("b"), assistant("c")]},
    {"name": "assistant_first", "messages": [assistant("b"), user("a"), assistant("c")]},
    {"name": "unknown_role", "messages": [user("a"), {"role": "critic", "content": "b"}, assistant("c")]},
    {"name": "developer", "messages": [{"role": "developer", "content": "D"}, user("a"), assistant("b")]},
    {"name": "empty_turns", "messages": [system(""), user(""), assistant(""), user(" "), assistant("\n")]},
    {"name": "null_answer", "messages": [user("a"), assistant(None)]},
    {"name": "no_content", "messages": [user("a"), {"role": "assistant"}]},
    {"name": "number_content", "messages": [user(7), assistant(1.5)]},
    {
        "name": "unicode",
        "messages": [user("Grüße, 世界 🙂👩‍👩‍👧 \u2028 é"), assistant("naïve ﬁn — ＡＢＣ <|im_end|> </s> {{ x }} {% if %}")],
    },
    {
        "name": "white_space",
        "messages": [system("\n S \n"), user("\t a \r\n b \u3000"), assistant("  c\n\n"), user("\n"), assistant(" d")],
    },
    {
        "name": "thinking",
        "messages": [
            user("2+2?"),
            assistant("<think>\nadd\n</think>\n\n4"),
            user("3+3?"),
            assistant("<think>\nadd again\n</think>\n\n6"),
        ],
    },
    {
        "name": "reasoning_field",
        "messages": [
            user("2+2?"),
            assistant("4", reasoning_content="\nadd\n", thinking="think", reasoning="reason"),
            user("3+3?"),
            assistant("\n6", reasoning_content="more", thinking="think", reasoning="reason"),
        ],
    },
    {"name": "unclosed_thinking", "messages": [user("q"), assistant("<think>\nnever closed"), user("r")]},
    {"name": "channel_thinking", "messages": [user("q"), assistant("<|channel>thought\nx<channel|> y <channel|>z")]},
    {
        "name": "thinking_on",
        "messages": [system("S"), user("q"), assistant("a"), user("r")],
        "variables": {"enable_thinking": True, "skip_think": False},
    },
    {
        "name": "thinking_off",
        "messages": [system("S"), user("q"), assistant("a"), user("r")],
        "variables": {"enable_thinking": False},
    },
    {"name": "tools_listed", "tools": [WEATHER, ADD, EMPTY], "messages": [user("Hi"), assistant("Hello")]},
    {"name": "tools_and_system", "tools": [WEATHER], "messages": [system("Be brief."), user("Hi"), assistant("Hello")]},
    {"name": "no_tools", "tools": [], "messages": [user("Hi"), assistant("Hello")]},
    {"name": "tool_call", "tools": [WEATHER], "messages": [*TOOL_TURN, assistant("Sunny.")]},
    {"name": "tool_call_open", "tools": [WEATHER, ADD], "messages": [system("S"), *TOOL_TURN]},
    {
        "name": "tool_call_null_content",
        "tools": [ADD],
        "messages": [
            user("1+2?"),
            assistant(None, tool_calls=[call("add", {"a": 1, "b": 2})]),
            tool("3"),
            assistant("3"),
        ],
    },
    {
        "name": "tool_call_text_arguments",
        "tools": [ADD],
        "messages": [
            user("1+2?"),
            assistant("Let me see.", tool_calls=[call("add", '{"a": 1, "b": 2}')]),
            tool("3"),
            assistant("3"),
        ],
    },
    {
        "name": "two_tool_calls",
        "tools": [WEATHER, ADD],
        "messages": [
            user("both"),
            assistant(
                "Calling.",
                tool_plan="I will call both.",
                tool_calls=[call("get_weather", {"city": ""}, "callaaaa1"), call("add", {}, "callbbbb2")],
            ),
            tool("rain", "callaaaa1"),
            tool({"sum": 3, "parts": [1, 2]}, "callbbbb2"),
            assistant("Rain and 3."),
            user("again"),
            assistant("<think>\nhm\n</think>\n\nno"),
        ],
    },
    {
        "name": "thinking_with_tools",
        "tools": [ADD],
        "messages": [
            user("q"),
            assistant("", reasoning_content="first", tool_calls=[call("add", {"a": 1, "b": None})]),
            tool("1"),
            assistant("<think>\nthen\n</think>\n\nnext", tool_calls=[call("add", {"a": 18446744073709551616, "b": 0})]),
            tool("[]"),
            assistant("done", reasoning_content="last"),
        ],
    },
    {
        "name": "unwrapped_call",
        "messages": [
            user("q"),
            assistant("", tool_calls=[{"name": "add", "arguments": {"a": 1}, "id": "abcdefgh1"}]),
            {"role": "tool", "name": "add", "content": "2", "tool_call_id": "abcdefgh1"},
            assistant("3"),
        ],
    },
    {
        "name": "bad_call_id",
        "tools": [ADD],
        "messages": [user("q"), assistant("", tool_calls=[call("add", {}, "1")]), tool("2", "1"), assistant("3")],
    },
    {"name": "no_tool_calls", "messages": [user("q"), assistant("a", tool_calls=[]), user("r"), assistant("b", tool_calls=None)]},
    {"name": "tool_without_call", "messages": [user("q"), tool("r"), assistant("s")]},
    {"name": "ipython", "messages": [user("q"), {"role": "ipython", "content": {"output": [1, "x"]}}, assistant("s")]},
    {"name": "parts", "messages": [system(TEXT_PARTS[:1]), user(TEXT_PARTS), assistant([{"type": "text", "text": "ok"}])]},
    {
        "name": "media_parts",
        "messages": [
            user([{"type": "video"}, {"type": "audio"}, {"type": "image_url", "image_url": "u"}, {"type": "text", "text": "t"}]),
            assistant("seen"),
        ],
    },
    {"name": "text_list_parts", "messages": [user(["a", "b"]), assistant("c")]},
    {
        "name": "parts_of_tool_result",
        "tools": [ADD],
        "messages": [
            user("q"),
            assistant("", tool_calls=[call("add", {"a": [], "b": {}})]),
            tool([{"type": "text", "text": "r1"}, {"type": "image"}, {"type": "text", "text": "r2"}]),
            assistant("s"),
        ],
    },
    {
        "name": "documents",
        "messages": [system("S"), user("q"), assistant("a", citations=[]), user("r")],
        "variables": {
            "documents": [
                {"title": "T1", "text": "one <b>", "n": 1},
                {"title": "T2", "text": "two", "content": "c", "snippet": "s"},
            ],
            "citation_quality": "on",
            "enable_citations": True,
        },
    },
    {
        "name": "documents_and_tools",
        "tools": [WEATHER, ADD],
        "messages": [user("q"), assistant("a", tool_calls=[call("add", {"a": 1})], tool_plan="p"), tool("2"), assistant("b")],
        "variables": {"documents": [{"title": "T1", "text": "one"}], "safety_mode": "STRICT"},
    },
    {
        "name": "options",
        "messages": [system("S"), user("q"), assistant("a")],
        "variables": {
            "safety_mode": "strict",
            "date_string": "01 Jan 2025",
            "tools_in_user_message": False,
            "knobs": [],
            "custom_tools": [ADD],
            "add_vision_id": True,
            "real_last_index": 2,
            "builtin_tools": ["brave_search", "code_interpreter"],
        },
    },
    {
        "name": "builtin_tools",
        "tools": [ADD],
        "messages": [user("q"), assistant("a", tool_calls=[call("brave_search", {"query": "x"})]), tool("r")],
        "variables": {"builtin_tools": ["brave_search"], "tools_in_user_message": True},
    },
]
