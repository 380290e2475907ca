"""Small templates, one construct each: a source, or (source, context). What jinja2 makes of them is the golden."""

MESSAGES = {
    "messages": [
        {"role": "system", "content": "S", "n": 3},
        {"role": "user", "content": "hello", "n": 1},
        {"role": "assistant", "content": None, "n": 2, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
    ]
}
DATA = {"d": {"b": 1, "A": [1, 2.5, None, True], "items": "key", "c": {"x": "y"}}, "l": [3, 1, 2], "s": "Grüße 世界🙂"}

CONSTRUCTS = [
    # literals and printing
    "{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ true }} {{ None }} {{ False }}",
    "{{ 'a' 'b' \"c\" }} {{ [1, 'x', None, 2.0] }} {{ (1,) }} {{ () }} {{ {'a': 1, 2: [3]} }} {{ (1, 2) }}",
    "{{ 'it\\'s' }} {{ ['it\\'s', 'q\"q', 'both\\'\"', 'n\\n\\t\\\\', 'é\\x00\\x7f\\u2028\\U0001F600', '\\xad'] }}",
    "{{ 12345678901234567890 }} {{ -9223372036854775808 }} {{ 12345678901234567890 == 12345678901234567890 }}",
    "{{ 1e16 }} {{ 123456789012345680.0 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }} {{ 1e22 }} {{ 5e-324 }} {{ 0.1 + 0.2 }}",
    "{{ '\\101\\n\\q\\x41' }}",
    ("{{ d }} {{ l }} {{ s }}", DATA),
    # arithmetic
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -1 | abs }} {{ +3 }} {{ 'ab' * 3 }} {{ [1] * 2 }}",
    "{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ true + 1 }} {{ 1 ~ 'a' ~ none ~ 2.0 ~ [1] }}", "{{ 'a' ~ 1 + 2 }}",
    "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ none + 'a' }}", "{{ [1] + (2,) }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1.0 % 0 }}",
    "{{ '%s is %d, %5.2f|%-5s|%05d|%x|%r|%%' % ('a', 3, 2.5, 'b', 42, 255, 'q') }} {{ '%s' % 1 }} {{ '%(a)s' % {'a': 1} }}",
    "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ '%s' % (1, 2) }}",
    # comparison and logic
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ 'a' == 1 }}",
    "{{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == none }} {{ x == y }} {{ none == false }} {{ 2 >= 2 }} {{ 1 <= 0 }}",
    "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ {} < {} }}", "{{ x < 1 }}",
    "{{ 0 or 'a' }} {{ '' and 1 }} {{ 1 and 2 }} {{ not 0 }} {{ not 'a' or 'b' }} {{ none or [] or {} or 0.0 }} {{ not not 1 }}",
    "{{ 'a' in 'abc' }} {{ 'x' not in 'abc' }} {{ 1 in [1.0] }} {{ 'a' in {'a': 1} }} {{ 3 in (1, 2) }} {{ 'a' in x }} {{ '' in '' }}",
    "{{ 1 in 'abc' }}", "{{ 1 in 5 }}", "{{ [1] in {} }}", "{{ 'a' in none }}", "{{ x in 'abc' }}",
    "{{ 'y' if 1 else 'n' }} {{ 'y' if 0 else 'n' }} {{ 'y' if 0 }}| {{ 1 if 0 else 2 if 0 else 3 }} {{ ('a' if 0) is defined }}",
    # undefined
    "[{{ x }}] {{ x is defined }} {{ x is none }} {{ x | default('d') }} {{ x | length }} {{ x | list }} {{ x ~ 'a' }} {{ [x] }} {{ not x }}",
    "{{ x.y }}", "{{ x['y'] }}", "{{ x() }}", "{{ x + 1 }}", "{{ -x }}", "{{ x[1:] }}", "{{ x | int }}", "{{ x | tojson }}",
    "{% for a in x %}{{ a }}{% else %}none{% endfor %} {{ x | upper }}| {{ x | join(',') }}| {{ x | trim }}| {{ x is string }}",
    "{{ x is iterable }} {{ x is sequence }} {{ x is mapping }} {{ x | first }} {{ x | items | list }} {{ x | string }} {{ x | d }}|",
    ("{{ d.nope }}| {{ d['nope'] }}| {{ d.nope is defined }} {{ l[9] }}| {{ l[9] is defined }} {{ s.nope }}| {{ none.a }}| {{ 5[0] }}|", DATA),
    ("{{ d.nope.deeper }}", DATA), ("{{ d.nope['x'] }}", DATA), ("{{ none.a.b }}", DATA), ("{{ l['a'] is defined }}", DATA),
    # attributes, subscripts, slices
    ("{{ d.b }} {{ d['A'][1] }} {{ d.c.x }} {{ d['items'] }} {{ d.items is callable }} {{ d.A.0 }} {{ d.get('b') }} {{ d.get('q', 7) }} {{ d.get('q') }}", DATA),
    ("{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-2:] }} {{ l[2:0:-1] }} {{ l[:] }} {{ l[none:2] }}", DATA),
    ("{{ s[0] }} {{ s[-1] }} {{ s[2:4] }} {{ s[::-1] }} {{ s[6:] }} {{ s | length }} {{ s[:-1] }} {{ s[::3] }} {{ (1, 2, 3)[1:] }} {{ s[true] }}", DATA),
    "{{ 'abc'['a'] is defined }} {{ 'abc'[1.0] is defined }} {{ {1: 'a'}[1.0] }} {{ {1: 'a'}[true] }} {{ {'1': 'a'}[1] is defined }}",
    ("{{ d[1:] }}", DATA), ("{{ d.A[2][1:] }}", DATA), ("{{ s['a':] }}", DATA), ("{{ d.b[:1] }}", DATA), "{{ 'abc'[::0] }}", "{{ {[1]: 2} }}",
    ("{{ d.A.append(1) }}", DATA), ("{{ d.update({}) }}", DATA), ("{{ d.pop('b') }}", DATA), ("{{ d.__class__ }}|{{ ''.__class__ }}", DATA),
    # string methods
    "{{ ' a '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ '\\n a\\n'.lstrip() }}| {{ 'abc'.rstrip('bc') }} {{ '\u3000a\u00a0'.strip() }} {{ 'éaé'.strip('é') }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(None, 1) }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }}",
    "{{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a</t>b</t>c'.split('</t>')[-1] }} {{ 'a b'.split(maxsplit=0) }} {{ 'a--b'.split('-', maxsplit=1) }}",
    "{{ 'a'.split('') }}", "{{ 'a'.split(1) }}", "{{ 'a'.startswith(1) }}", "{{ 'a'.strip(1) }}", "{{ 'a'.join([1]) }}", "{{ 'a'.nope() }}",
    "{{ 'abc'.startswith('a') }} {{ 'abc'.startswith(('x', 'ab')) }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ ''.startswith('') }}",
    "{{ 'aBc dEf'.upper() }} {{ 'aBc'.lower() }} {{ 'aBc dEf\\'s'.title() }} {{ 'aBc DEF'.capitalize() }} {{ 'aBc'.swapcase() }} {{ 'straße ﬁ ŉ'.upper() }} {{ 'ΑΣ ΣΑ'.lower() }} {{ 'ǆ ß'.title() }} {{ 'İ'.lower() }}",
    "{{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('b', '') }} {{ 'aXbX'.replace('X', '') }} {{ 'abc'.find('c') }} {{ 'éc'.find('c') }} {{ 'abc'.find('x') }} {{ 'abab'.rfind('b') }} {{ 'abab'.count('ab') }} {{ 'abc'.count('') }}",
    "{{ 'abc'.index('c') }} {{ 'a.b.c'.partition('.') }} {{ 'a.b.c'.rpartition('.') }} {{ 'abc'.partition('.') }} {{ 'abc'.rpartition('.') }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}",
    "{{ 'abc'.index('x') }}",
    "{{ '-'.join(['a', 'b']) }} {{ ','.join('abc') }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }} {{ 'ab'.center(5, '*') }} {{ 'abc'.center(6, '*') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}",
    "{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isalpha() }} {{ '١'.isdigit() }} {{ 'A1'.isupper() }} {{ '1'.islower() }}",
    "{{ '{} {} {0}'.format(1) }}", "{{ '{} {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x:>5}|{y:.2f}|{z!r}'.format(x=1, y=2.345, z='q') }} {{ '{:,}'.format(1234567) }} {{ '{:05d}'.format(42) }} {{ '{:^7}'.format('ab') }} {{ '{{}}'.format() }} {{ '{:%}'.format(0.5) }} {{ '{:x}'.format(255) }} {{ '{0[a]}'.format({'a': 1}) }} {{ '{:<4}|'.format('é') }}",
    # dict and list methods
    ("{{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d.keys() }} {{ d.items() }} {{ d.copy() == d }}", DATA),
    ("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {{ d.items()[0] is defined }} {{ d.items() is sequence }} {{ d.items() | length }}", DATA),
    ("{{ l.index(1) }} {{ l.count(3) }} {{ (1, 1).count(1) }} {{ l.copy() }}", DATA), ("{{ l.index(9) }}", DATA), ("{{ d.get() }}", DATA), ("{{ d.get([]) }}", DATA),
    # for
    "{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {{ loop.changed(i // 2) }};{% endfor %}{{ loop is defined }}",
    "{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1] %}x{% else %}empty{% endfor %}",
    "{% for i in range(6) if i % 2 %}{{ i }}{{ loop.index }}{{ loop.last }} {% else %}none{% endfor %}{% for i in range(3) if i > 5 %}{% else %}none{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for c in 'aé🙂' %}{{ c }}.{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}", "{% for a in 5 %}{% endfor %}", "{% for a in none %}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ i }}{{ j }}{{ loop.last }} {% endfor %}{{ loop.last }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %} {{ i is defined }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% for i in range(5, 0, -2) %}{{ i }}{% endfor %} {{ range(3) }} {{ range(1, 4) | list }} {{ range(3)[1] }} {{ range(5)[1:3] | list }} {{ range(3) | length }} {{ 2 in range(3) }}",
    "{{ range(100001) }}", "{{ range(0) | list }} {{ range(1, 2, 0) }}", "{% break %}", "{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    # set, namespace, with
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}{% set (d, e) = [3, 4] %}{{ d }}{{ e }}",
    "{% set x %}a{{ 1 + 1 }}{% endset %}{{ x }}{{ x | length }}{% set y | upper | trim %} q {% endset %}[{{ y }}]",
    "{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns['a'] }}{% set ns.c %}blk{% endset %}{{ ns.c }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.a, ns.b = 5, 6 %}{{ ns.a }}{{ ns.b }}", "{% set d = {} %}{% set d.a = 1 %}", "{% set q.a = 1 %}", "{% set a, b = 1 %}", "{% set a, b = 'abc' %}",
    "{% if true %}{% set x = 1 %}{% endif %}{{ x }}{% if false %}{% set y = 1 %}{% endif %}{{ y is defined }}", ("{% set l = 5 %}{{ l }}", DATA),
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }}", "{{ dict(1) }}", "{% set true = 1 %}", "{% set 'a' = 1 %}",
    # macro and call
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=9) }}{{ m(b=1, a=0) }}{{ m() }}{{ m.name }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{{ a }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}{{ m(*[1, 2], **{'k': 'v'}) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f(2) | length }}", "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}",
    "{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}x{{ 1 }}{% endcall %}", "{% macro w() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) w() %}{{ a + b }}{% endcall %}", "{% macro w() %}{{ caller is defined }}{% endmacro %}{{ w() }}", "{% macro w() %}-{% endmacro %}{% call w() %}x{% endcall %}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{% set x = 2 %}{{ m() }}{{ x }}", "{{ m() }}{% macro m() %}{% endmacro %}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}{% filter replace('a', 'b') | upper %}aaa{% endfilter %}", "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}", "{% for i in [1, 2] %}{% generation %}{{ i }}{{ loop.last }}{% endgeneration %}{% endfor %}",
    # text filters
    "{{ 'aBc' | upper | lower }} {{ 'a b-c (d) it\\'s' | title }} {{ 'aBC' | capitalize }} {{ ' a ' | trim }}| {{ 'xax' | trim('x') }} {{ 1 | upper }} {{ none | upper }} {{ 'aaa' | replace('a', 'b', 1) }} {{ 111 | replace(1, 2) }}",
    "{{ 'a\\nb\\n\\nc' | indent }}| {{ 'a\\nb' | indent(2, true) }}| {{ 'a\\n\\nb' | indent(1, blank=true) }}| {{ 'a\\nb' | indent('> ') }} {{ 'a\\n' | indent }}|", "{{ 'ab' | center(6) }}| {{ 'abc' | center(6) }}| {{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar' | truncate(5) }} {{ 'foo bar baz' | truncate(5, leeway=0, end='!') }}", "{{ 'a b, c-d e_f' | wordcount }} {{ '%s-%s' | format(1, 'b') }} {{ '%(a)s' | format(a=3) }}",
    "{{ '<a href=\"x\">&\\'' | escape }} {{ ('<' | safe) + '<' }} {{ '<' + ('<' | safe) }} {{ ('<' | safe) ~ '<' }} {{ '<' | e | e }} {{ '<' | safe | forceescape }} {{ ('<' | safe) is escaped }} {{ ['<' | safe] }} {{ '<' | string }} {{ 5 | string + '1' }}",
    # number filters
    "{{ '42' | int }} {{ '4.7' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ '0x1f' | int(base=16) }} {{ 'ff' | int(0, 16) }} {{ 4.9 | int }} {{ -4.9 | int }} {{ ' 7 ' | int }} {{ none | int }} {{ true | int }} {{ [] | int(5) }} {{ '1e3' | int }} {{ '-12' | int }}",
    "{{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ 'x' | float(2) }} {{ -3 | abs }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42.1 | round(0, 'ceil') }} {{ 42.9 | round(method='floor') }} {{ 7 | round }} {{ 1234 | round(-2) }} {{ 0.15 | round(1) }} {{ -1.5 | abs }}", "{{ 'a' | abs }}", "{{ 1 | round(0, 'x') }}",
    # sequence filters
    ("{{ l | sort }} {{ l | sort(reverse=true) }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ l | first }} {{ l | last }} {{ l | max }} {{ l | min }} {{ l | sum }} {{ l | length }} {{ l | count }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ [] | first is defined }} {{ [] | max is defined }}", DATA),
    ("{{ l | join(', ') }} {{ l | join }} {{ [1, none, 'a'] | join('-') }} {{ 'abc' | list }} {{ d | list }} {{ d | length }} {{ ['a', 'b', 'A'] | unique | list }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ [1, 2, 3, 4, 5] | slice(3) | list }} {{ [1, 2, 3, 4] | slice(3, 'x') | list }} {{ d | first }}", DATA),
    ("{{ {'b': 1, 'a': 3, 'C': 2} | dictsort }} {{ {'b': 1, 'a': 3} | dictsort(by='value') }} {{ {'b': 1, 'C': 2} | dictsort(true) }} {{ {'b': 1, 'a': 3} | dictsort(reverse=true) }} {{ d | items | list }} {% for k, v in d | items %}{{ k }}{% endfor %} {{ d | dictsort | first }}", DATA), "{{ 5 | dictsort }}", "{{ {1: 1, 'a': 2} | dictsort }}", "{% for k, v in 'a' | items %}{% endfor %}", "{{ [1, 'a'] | sort }}", "{{ ['a'] | sum }}", "{{ 5 | length }}", "{{ none | length }}", "{{ 5 | list }}", "{{ 5 | join }}",
    ("{{ messages | map(attribute='role') | list }} {{ ['a', 'b'] | map('upper') | join }} {{ [' a', 'b '] | map('trim') | list }} {{ [1, 2] | map('string') | list }} {{ messages | map(attribute='x', default='-') | join }} {{ ['ab'] | map('replace', 'a', 'b') | list }}", MESSAGES),
    ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | selectattr('role', '==', 'user') | map(attribute='content') | first }} {{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='n') | list }} {{ messages | selectattr('tool_calls') | list | length }} {{ messages | selectattr('tool_calls', 'defined') | list | length }} {{ messages | selectattr('content', 'none') | list | length }} {{ messages | sort(attribute='n') | map(attribute='n') | list }} {{ messages | sum(attribute='n') }} {{ (messages | max(attribute='n')).role }} {{ messages | sort(attribute='role,n') | map(attribute='n') | list }}", MESSAGES),
    "{{ [1, 2, 3] | select('odd') | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ [0, 1, ''] | select | list }} {{ [1, 2] | select('gt', 1) | list }} {{ none | map('upper') | list }} {{ [3] | select('divisibleby', 3) | list }}", "{% set g = [1, 2] | select %}{% if g %}true{% endif %}{% for i in g %}{{ i }}{% endfor %}{% for i in g %}{{ i }}{% endfor %}", "{{ [1] | select | length }}", "{{ ([1] | map('string')) is sequence }} {{ ([1] | map('string')) is iterable }} {{ ([1] | map('string'))[0] is defined }}", "{{ [1] | map('nope') | list }}", "{{ [1] | select('nope') | list }}", "{{ [1] | map | list }}", ("{{ [1, 2] | map(attribute='a.b') | list }}", {}),
    ("{{ d | attr('items') is callable }} {{ d | attr('b') is defined }} {{ d | default('x') == d }} {{ '' | default('x') }}| {{ '' | default('x', true) }} {{ none | default('x') }} {{ 0 | d(5, boolean=true) }}", DATA),
    # unknown filters, tests, tags
    "{{ 1 | nope }}", "{% if false %}{{ 1 | nope }}{% endif %}ok", "{% if true %}{{ 1 | nope }}{% endif %}", "{{ 1 is nope }}", "{% nope %}", "{% if %}{% endif %}", "{% if 1 %}", "{% endif %}", "{{ }}", "{{ 1", "{% if 1 %}a{% else %}b", "{# open", "{{ 'open }}", "{{ (1 }}", "{{ 1) }}", "{{ [1, 2 }}", "{{ a b }}", "{{ 1 is defined is none }}", "{{ f(a=1, 2) }}", "{% for x y in z %}{% endfor %}", "{% raw %}a", "{{ $ }}", "{{ 'a' is }}",
    # tests
    "{{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ 1 is number }} {{ true is number }} {{ 'a' is string }} {{ [] is sequence }} {{ {} is mapping }} {{ [] is iterable }} {{ 5 is iterable }} {{ {} is sequence }} {{ 'a' is sequence }} {{ 5 is sequence }} {{ none is none }} {{ true is boolean }} {{ 1 is true }} {{ true is true }} {{ 0 is false }}",
    "{{ 2 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'A' is upper }} {{ 'a' is lower }} {{ 1 is eq 1 }} {{ 1 is ne 1 }} {{ 1 is lt 2 }} {{ 2 is ge(2) }} {{ 1 is in [1] }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 1 is sameas 1 }} {{ 1 is sameas true }} {{ 1 is not none }} {{ x is not defined }} {{ range is callable }} {{ 1 is undefined }} {{ 'a' is in 'abc' }}", "{{ not x is defined }} {{ 1 if x is defined else 2 }} {{ x is defined and y is defined or 1 }} {{ 1 == 1 is true }} {{ none is not none }} {{ 'a' is string and 'b' }}", "{{ 'a' is even }}", "{{ 1 is divisibleby 0 }}", "{{ none is lt 1 }}",
    # globals
    "{{ raise_exception('no ' ~ 'way') }}", "{{ raise_exception() }}", "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %%') }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner('|') %}{% for i in [1, 2, 3] %}{{ j() }}{{ i }}{% endfor %}", "{{ 'abc'() }}", "{{ namespace().x is defined }}", "{{ upper('a') }}",
    # JSON
    ("{{ d | tojson }} {{ d | tojson(indent=1) }} {{ [1e16, 1e-5, 0.1] | tojson }} {{ '\u2028é\\u0001' | tojson }}", DATA), ("{{ d.items() | tojson }}", DATA), "{{ (1, 2) | tojson }} {{ {'a': (1,)} | tojson(sort_keys=true) }}", "{{ {(1,): 2} | tojson }}", "{{ range(2) | tojson }}", "{{ [1] | select | tojson }}", "{{ {'b': 1, 'a': [1, {'z': 1, 'y': 2}]} | tojson(indent=2, sort_keys=True) }} {{ {'a': 1} | tojson(separators=('; ', '=')) }} {{ [1, 2] | tojson(indent='--') }} {{ 'é🙂' | tojson(true) }} {{ {'a': 1, 'b': 2} | tojson(separators=(',', ':'), indent=1) }}", "{{ [x] | tojson }}", "{{ {1: 2, 'a': 3} | tojson(sort_keys=true) }}",
    # white space
    "a\n  {%- if true %}\n  b\n  {%- endif %}\n c", "{%- for i in [1, 2] -%}\n  {{ i }},\n{%- endfor -%}\n", "  {{- ' x ' -}}  \n  {{ 1 }}", "{% for i in [1,2] %}\n  * {{ i }}\n{% endfor %}\nend", "\t{# c #}\n{#- c -#}\n  x {#+ c +#}\n", "{% if true %}\r\na\r\n{% endif %}\r\n\r\n", "  {% raw %}  {{ a }} {# b #}\n{% endraw %}  \nx", "a {%+ if true %} b {%+ endif +%}\n c", "{{ {'a': {'b': 1}} }}{{ '}}' }}{{ \"%}\" }}", "{{ [\n1,\n2\n] }}\n\n", "é {%- if 1 %}\u00a0 {%- endif %}\u2003x",
    # conversations
    ("{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.content is string %}{{ m.content | trim }}{% elif m.tool_calls %}{% for c in m.tool_calls %}{% set f = c.function if c.function else c %}{{ f.name }}({{ f.arguments | tojson }}){% endfor %}{% endif %}{% if not loop.last %}\n{% endif %}{% endfor %}", MESSAGES), ("{{ messages[0]['role'] == 'system' and messages[1:] | length }}{% set messages = messages[1:] %}{{ messages[0].role }}{{ messages[-1].tool_calls[0].function.arguments.a }}", MESSAGES),
]
