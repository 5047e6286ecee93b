"""What emitted kernels may use of the Metal Shading Language: words with the version that brought them to macOS, and what C++ has and the
language has not. check(text) raises; it is no compiler, and knows a construct by its words."""

import re

from suite import expect

# Sections 2 (types), 4 (address spaces), 5 (attributes) and 6 (library) of the specification.
TYPES = {"void": 1.0, "bool": 1.0, "char": 1.0, "uchar": 1.0, "short": 1.0, "ushort": 1.0, "int": 1.0, "uint": 1.0, "unsigned": 1.0, "float": 1.0, "half": 1.0,
         "long": 2.2, "ulong": 2.2, "int8_t": 1.0, "uint8_t": 1.0, "int16_t": 1.0, "uint16_t": 1.0, "int32_t": 1.0, "uint32_t": 1.0, "int64_t": 2.2,
         "uint64_t": 2.2, "uint3": 1.0, "float4": 1.0, "uint4": 1.0, "int4": 1.0, "size_t": 1.0,
         "ulong2": 2.2, "simdgroup_half8x8": 2.3, "simdgroup_float8x8": 2.3, "bfloat": 3.1, "simdgroup_bfloat8x8": 3.1}
SPACES = {"device": 1.0, "constant": 1.0, "threadgroup": 1.0}
WORDS = {"decltype", "kernel", "const", "static", "inline", "return", "if", "else", "for", "while", "do", "break", "continue", "switch", "case", "default", "struct",
         "typedef", "template", "class", "auto", "using", "namespace", "alignas", "sizeof", "true", "false", "signed"}
LIBRARY = {"as_type": 1.0, "threadgroup_barrier": 1.0, "simd_shuffle_xor": 2.1, "simdgroup_load": 2.3, "simdgroup_multiply_accumulate": 2.3, "thread_elements": 2.3, "fma": 1.0, "signbit": 1.0,
           **{name: 1.0 for name in ("fabs", "copysign", "floor", "ceil", "trunc", "rint", "sqrt", "exp2", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
                                     "cosh", "asinh", "acosh", "atanh", "atan2", "pow")}}
ATTRIBUTES = {"buffer": 1.0, "id": 2.0, "threadgroup_position_in_grid": 1.0, "thread_position_in_threadgroup": 1.0, "threads_per_threadgroup": 1.0,
              "threadgroups_per_grid": 1.0, "max_total_threads_per_threadgroup": 1.0}
LACKS = {"double", "goto", "try", "catch", "throw", "new", "delete", "dynamic_cast", "typeid", "virtual", "thread_local", "register", "asm", "restrict",
         "__restrict__", "memcpy", "__attribute__", "_Pragma"}
DIRECTIVES = re.compile(r"#(include <metal_stdlib>|define |ifndef |endif|pragma unroll|pragma clang fp contract\(off\)$)")
TOKEN = re.compile(r"[A-Za-z_]\w*|0[xX][0-9a-fA-F.]*(?:[pP][+-]?\d+)?\w*|\d[\w.]*(?:(?<=[eE])[+-]\d+\w*)?|[\[\]]{2}|\S")


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: "\n" * found.group().count("\n"), text, flags=re.S)


def version_of(text):
    found = re.match(r"// Metal Shading Language (\d\.\d)\n", text)
    expect(found, "the head names no version")
    return float(found.group(1))


def check_attributes(text, version):
    for attributes in re.findall(r"\[\[(.*?)\]\]", text):
        name = re.match(r"\w+", attributes).group()
        expect(ATTRIBUTES.get(name, 9) <= version, f"[[{attributes}]] is no attribute of version {version}")


def check_directives(lines):
    for line in lines:
        if line.lstrip().startswith("#"):
            expect(DIRECTIVES.match(line.lstrip()), f"a line of the preprocessor's that is not the language's: {line}")


def check_numbers(tokens):
    for token in tokens:
        if token[0].isdigit():
            expect(not re.search(r"ll$|LL$|[pP][+-]?\d", token) or token.startswith("0x") and not re.search(r"[pP]", token), f"a number the language has not: {token}")


def check_words(tokens, version, defined):
    known = {**TYPES, **SPACES, **LIBRARY}
    functions = {tokens[i] for i in range(1, len(tokens) - 1) if tokens[i + 1] == "(" and tokens[i - 1] in set(TYPES) | defined}
    for i, token in enumerate(tokens[:-1]):
        expect(token not in LACKS and token != '"', f"{token}: the language has none")
        expect((token, tokens[i + 1]) != ("long", "long"), "long long: the language has none")
        expect(known.get(token, 0) <= version, f"{token} is of version {known.get(token)}, and the text of {version}")
        if not re.match(r"[A-Za-z_]", token):
            continue
        if tokens[i + 1] == "(":
            expect(token in functions | defined | WORDS | set(LIBRARY) | set(TYPES) | set(SPACES), f"{token}() is neither the text's nor the language's")
        elif re.match(r"[A-Za-z_]", tokens[i + 1]):
            expect(token in defined | WORDS | set(TYPES) | set(SPACES), f"{token} is no type of the language's: {' '.join(tokens[max(0, i - 5):i + 5])}")


def check_spaces(tokens):
    """A pointer says where it points; what stands outside functions is in constant memory; a function's variables are not static."""
    depth = 0
    for i, token in enumerate(tokens):
        depth += (token == "{") - (token == "}")
        if token == "*" and i > 0 and tokens[i - 1] in TYPES:
            expect(set(tokens[max(0, i - 4):i]) & {*SPACES, "SPACE_local"}, f"a pointer without an address space: {' '.join(tokens[max(0, i - 6):i + 4])}")
        if token == "static":
            declared = tokens[i:i + 12]
            expect(depth == 0 and "(" in declared and "=" not in declared[:declared.index("(")], f"a static variable: {' '.join(declared)}")


def check(text):
    version = version_of(text)
    plain = without_comments(text).replace("\\\n", " ")
    check_attributes(plain, version)
    check_directives(plain.split("\n"))
    defined = set(re.findall(r"#define (\w+)", plain)) | set(re.findall(r"typedef \w+ (\w+);", plain)) | set(re.findall(r"\b(?:class|struct) (\w+)", plain))
    code = "\n".join("" if line.lstrip().startswith("#") else line for line in re.sub(r"\[\[.*?\]\]", "", plain).split("\n"))
    tokens = TOKEN.findall(code)
    check_numbers(tokens)
    check_words(tokens, version, defined)
    check_spaces(tokens)
