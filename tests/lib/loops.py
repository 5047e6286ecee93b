"""The innermost loops of compiled kernels: what a compiler made of the C that tgc wrote.

An object file compiled with -g (which changes no instruction) is disassembled; natural loops
are found by dominators in each function's control flow; loops that hold no other loop are
counted: fused multiply-adds, multiplications and additions, loads, stores, and traffic with the
stack. Compilers inline kernels into the function that calls them, so that a loop's kernel comes
from the debugging information: the lines of its instructions, and the functions they stand in.
(The names that addr2line gives for inlined functions are incomplete for clang's code.)

x86-64 and AArch64, by GNU objdump and addr2line. Trip counts are not known here.
"""

import bisect
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field

KERNEL_ROW = re.compile(r'^ {4}\{"(\w+)", "(?:[^"\\]|\\.)*", ([0-9.e+]+), ([0-9.e+]+)\},$', re.M)


@dataclass
class Instruction:
    address: int
    name: str
    operands: str
    target: int = None          # of a branch within the function


@dataclass
class Loop:
    function: str               # the symbol it stands in
    kernel: str                 # the emitted kernel it comes from; None: not of a kernel
    variant: str                # the C function: the kernel's, or one of it for certain vectors
    address: int                # of its header
    instructions: int = 0
    fma: int = 0
    multiply: int = 0
    add: int = 0
    loads: int = 0
    stores: int = 0
    stack: int = 0              # memory operands that are relative to the stack
    calls: int = 0
    bits: int = 0               # widest vector of its floating-point arithmetic; 32: scalar
    depth: int = 0              # how many loops it stands in, itself among them
    sums: int = 0               # registers that only gather sums while the loop runs
    addresses: list = field(default_factory=list, repr=False)

    def arithmetic(self):
        return self.fma + self.multiply

    def heat(self):
        """Orders the loops of a kernel: a contraction's sums stay in registers in the loop where
        its time goes; where there are none, that is the deepest; then the one of most products."""
        return self.sums, self.depth, self.arithmetic(), self.add


def kernels_of(source_text):
    """{kernel: FLOP of one launch}, from the table that every emitted file carries."""
    table = source_text[source_text.index("_kernel kernel_info[]"):]
    return {name: float(flop) for name, flop, _ in
            KERNEL_ROW.findall(table[:table.index("\n};")])}


# ------------------------------------------------------------------------------- disassembling


class Machine:
    """How an architecture's disassembly reads."""

    def __init__(self, prefix, arm):
        self.prefix, self.arm = prefix, arm

    @staticmethod
    def of(compiler):
        """From the compiler's name or triple: aarch64-linux-gnu-gcc, or a native one."""
        done = subprocess.run([*compiler, "-dumpmachine"], stdout=subprocess.PIPE, text=True,
                              check=True)
        arm = done.stdout.startswith("aarch64")
        native = subprocess.run(["uname", "-m"], stdout=subprocess.PIPE, text=True,
                                check=True).stdout.startswith("aarch64")
        return Machine("aarch64-linux-gnu-" if arm and not native else "", arm)

    def disassemble(self, path):
        """{function: [Instruction]} of the sections of code."""
        syntax = [] if self.arm else ["-M", "intel"]
        text = subprocess.run([f"{self.prefix}objdump", "-d", "--no-show-raw-insn", *syntax, path],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        functions, current, section = {}, None, None
        for line in text.splitlines():
            if line.startswith("Disassembly of section"):
                section = line.split()[-1].rstrip(":")
                continue
            head = re.match(r"^[0-9a-f]+ <(.+)>:$", line)
            if head:
                current = functions.setdefault((section, head.group(1)), [])
                continue
            body = re.match(r"^ *([0-9a-f]+):\t(.*)$", line)
            if body and current is not None:
                current.append(self.instruction(int(body.group(1), 16), body.group(2)))
        return functions

    def instruction(self, address, text):
        text = re.sub(r"\s+(#|//).*$", "", text)
        words = text.split(None, 1)
        name, operands = words[0], words[1] if len(words) > 1 else ""
        while name in ("data16", "cs", "ds", "notrack", "bnd", "rep", "lock") and operands:
            name, _, operands = operands.partition(" ")
        instruction = Instruction(address, name, operands.strip())
        if self.is_branch(name):
            target = re.search(r"(?:^|, *)(?:0x)?([0-9a-f]+) <", operands)
            instruction.target = int(target.group(1), 16) if target else None
        return instruction

    def is_branch(self, name):
        if self.arm:
            return name == "b" or name.startswith(("b.", "cbz", "cbnz", "tbz", "tbnz"))
        return name.startswith("j")

    def ends(self, name):
        """Nothing falls through it."""
        return name in (("b", "ret", "br", "udf") if self.arm else ("jmp", "ret", "ud2", "hlt"))

    def has_frame(self, code):
        """Whether the frame pointer points to the stack in this function."""
        if self.arm:
            return any(i.operands.replace(" ", "").startswith("x29,sp") for i in code)
        return any(i.name == "mov" and i.operands == "rbp,rsp" for i in code)

    def written(self, instruction):
        """The number of the vector register that it writes, and whether it adds to what that
        held; None: it writes none."""
        name, operands = instruction.name, instruction.operands.replace(" ", "")
        parts = operands.split(",")
        if self.arm:
            found = re.match(r"[vqsd](\d+)\b", parts[0])
            if not found or name.startswith(("st", "cmp", "fcmp")):
                return None, False
            same = any(re.match(rf"[vqsd]{found.group(1)}\b", p) for p in parts[1:])
            return found.group(1), name in ("fmla", "fmls", "udot", "sdot", "usdot") or \
                (name in ("fadd", "add", "fmadd", "fmax", "fmaxnm") and same)
        found = re.match(r"[xyz]mm(\d+)(?:\{|$)", parts[0])
        if not found or name.startswith(("cmp", "ucomis", "vucomis", "comis", "vcomis")):
            return None, False
        same = any(re.match(rf"[xyz]mm{found.group(1)}$", p) for p in parts[1:])
        plain = name.removeprefix("v")
        return found.group(1), bool(
            re.match(r"fn?m(add|sub)231|dpbusd|dpwssd|dpbf16ps", plain)
            or re.match(r"(add|max)[ps][sd]$|paddd$", plain) and (same or plain == name))

    # ------------------------------------------------------------------------------- counting

    def count(self, loop, instruction, frame):
        loop.instructions += 1
        loop.addresses.append(instruction.address)
        name, operands = instruction.name, instruction.operands
        if self.arm:
            self.count_arm(loop, name, operands, frame)
        else:
            self.count_x86(loop, name, operands, frame)

    @staticmethod
    def arithmetic(loop, kind, bits):
        setattr(loop, kind, getattr(loop, kind) + 1)
        loop.bits = max(loop.bits, bits)

    def count_x86(self, loop, name, operands, frame):
        loop.calls += name == "call"
        plain = name.removeprefix("v")
        if re.match(r"fn?m(add|sub)\d+[ps][sd]$", plain) or re.match(r"(dpbusd|dpwssd|dpbf16ps)",
                                                                     plain):
            self.arithmetic(loop, "fma", x86_bits(plain, operands))
        elif re.match(r"(mul[ps][sd]|pmaddubsw|pmaddwd)$", plain):
            self.arithmetic(loop, "multiply", x86_bits(plain, operands))
        elif re.match(r"(add|sub)[ps][sd]$", plain):
            self.arithmetic(loop, "add", x86_bits(plain, operands))
        if name in ("push", "pop"):
            loop.stack += 1
        if "[" not in operands or name.startswith(("lea", "nop", "prefetch", "j")):
            return
        memory = re.search(r"\[([^\]]*)\]", operands).group(1)
        first = operands.split(",")[0]
        only_reads = name.startswith(("cmp", "test", "ucomis", "vucomis", "comis", "vcomis"))
        writes = "[" in first and not only_reads
        reads = not writes or not re.match(r"v?mov|set|vextract|vpextr|vcvtps2ph", name)
        loop.stores += writes
        loop.loads += reads
        base = re.match(r"(r[sb]p)\b", memory)
        loop.stack += bool(base) and (base.group(1) == "rsp" or frame)

    def count_arm(self, loop, name, operands, frame):
        loop.calls += name in ("bl", "blr")
        bits = 128 if re.search(r"v\d+\.(16b|8h|4s|2d)", operands) else \
            64 if re.search(r"v\d+\.(8b|4h|2s)", operands) else 32
        if name in ("fmla", "fmls", "fmadd", "fmsub", "fnmadd", "fnmsub", "udot", "sdot", "usdot"):
            self.arithmetic(loop, "fma", bits)
        elif name in ("fmul", "fnmul") or re.match(r"[su]m(ull|lal)2?$", name):
            self.arithmetic(loop, "multiply", bits)
        elif name in ("fadd", "fsub"):
            self.arithmetic(loop, "add", bits)
        if "[" not in operands or name.startswith("prf") or not name.startswith(("ld", "st")):
            return
        base = re.search(r"\[(\w+)", operands).group(1)
        if name.startswith("ld"):
            loop.loads += 1
        else:
            loop.stores += 1
        loop.stack += base == "sp" or (base == "x29" and frame)


def x86_bits(plain, operands):
    if plain.endswith(("ss", "sd")) and not plain.startswith("dp"):
        return 32 if plain.endswith("ss") else 64
    return 512 if "zmm" in operands else 256 if "ymm" in operands else 128


# ------------------------------------------------------------------------------------- loops


def blocks_of(machine, code):
    """Basic blocks as [start, end) places in the code, and the successors of each."""
    place = {i.address: k for k, i in enumerate(code)}
    starts = {0}
    for k, instruction in enumerate(code):
        if instruction.target in place:
            starts.add(place[instruction.target])
        if instruction.target is not None or machine.ends(instruction.name):
            starts.add(k + 1)
    starts = sorted(s for s in starts if s < len(code))
    blocks = list(zip(starts, starts[1:] + [len(code)]))
    successors = []
    for start, end in blocks:
        last, follow = code[end - 1], []
        if last.target in place:
            follow.append(bisect.bisect_left(starts, place[last.target]))
        if not machine.ends(last.name) and end < len(code):
            follow.append(bisect.bisect_left(starts, end))
        successors.append(follow)
    return blocks, successors


def reverse_postorder(successors):
    order, state, stack = [], [0] * len(successors), [(0, 0)]
    state[0] = 1
    while stack:
        block, number = stack.pop()
        if number < len(successors[block]):
            stack.append((block, number + 1))
            follow = successors[block][number]
            if not state[follow]:
                state[follow] = 1
                stack.append((follow, 0))
        else:
            order.append(block)
    return order[::-1]


def dominators(successors):
    """Immediate dominators, by Cooper, Harvey and Kennedy's simple algorithm."""
    order = reverse_postorder(successors)
    rank = {block: k for k, block in enumerate(order)}
    before = {block: [] for block in order}
    for block in order:
        for follow in successors[block]:
            before[follow].append(block)
    parent = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [b for b in before[block] if b in parent]
            new = known[0]
            for other in known[1:]:
                while new != other:
                    while rank[new] > rank[other]:
                        new = parent[new]
                    while rank[other] > rank[new]:
                        other = parent[other]
            if parent.get(block) != new:
                parent[block] = new
                changed = True
    return parent, before, rank


def innermost(successors):
    """Every natural loop that holds no other: [(header, {blocks}, depth)]."""
    parent, before, rank = dominators(successors)

    def dominates(a, b):
        while rank[b] > rank[a]:
            b = parent[b]
        return a == b

    loops = {}
    for block in rank:
        for header in successors[block]:
            if dominates(header, block):
                body, work = loops.setdefault(header, {header}), [block]
                while work:
                    member = work.pop()
                    if member not in body:
                        body.add(member)
                        work.extend(before[member])
    return [(header, body, sum(header in other for other in loops.values()))
            for header, body in loops.items()
            if not any(other != header and other in body for other in loops)]


def sums_of(machine, code):
    """How many vector registers gather sums: every write in the loop adds to what they held."""
    gathers, others = set(), set()
    for instruction in code:
        register, adds = machine.written(instruction)
        if register is not None:
            (gathers if adds else others).add(register)
    return len(gathers - others)


def kernel_of(names, kernels):
    """(kernel, variant) of the functions at an address; a variant's name begins with the
    kernel's."""
    for variant in names:
        name = variant
        while name:
            if name in kernels:
                return name, variant
            name = name.rpartition("_")[0]
    return None, None


def functions_by_line(source_text):
    """[(first line, last line, function)] of the definitions, which end at a brace in column 1."""
    attribute = re.compile(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)\s*")
    found, start, name = [], None, None
    for number, line in enumerate(source_text.splitlines(), 1):
        if line.startswith("}") and start is not None:
            found.append((start, number, name))
            start = None
        head = re.match(r"[A-Za-z_][\w\s*]*?\b(\w+)\(", attribute.sub("", line))
        if head:
            start, name = number, head.group(1)     # a declaration is followed by another head
    return found


def functions_at(machine, path, section, addresses, source_name, by_line):
    """{address: [functions of the source's lines there, innermost first]}; the compiler's own
    headers have lines there too."""
    if not addresses:
        return {}
    text = subprocess.run([f"{machine.prefix}addr2line", "-a", "-i", "-j", section, "-e", path],
                          input="\n".join(map(hex, addresses)), stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    starts = [start for start, _, _ in by_line]
    found, names = {}, None
    for line in text.splitlines():
        if line.startswith("0x"):
            names = found.setdefault(int(line, 16), [])
            continue
        number = re.search(rf"(?:^|/){re.escape(source_name)}:(\d+)", line)
        place = bisect.bisect_right(starts, int(number.group(1))) - 1 if number else -1
        if place >= 0 and int(number.group(1)) <= by_line[place][1]:
            names.append(by_line[place][2])
    return found


def audit(path, source, compiler=("gcc",)):
    """The innermost loops that compute, each with its kernel, of an object file that was made
    from the emitted C file."""
    source_text = source.read_text()
    kernels, by_line = kernels_of(source_text), functions_by_line(source_text)
    machine = Machine.of(compiler)
    found = []
    for (section, function), code in machine.disassemble(path).items():
        if not code:
            continue
        frame = machine.has_frame(code)
        blocks, successors = blocks_of(machine, code)
        loops = []
        for header, body, depth in innermost(successors):
            loop = Loop(function, None, None, code[blocks[header][0]].address, depth=depth)
            inside = [i for block in sorted(body) for i in code[slice(*blocks[block])]]
            for instruction in inside:
                machine.count(loop, instruction, frame)
            loop.sums = sums_of(machine, inside)
            if loop.arithmetic() or loop.add:
                loops.append(loop)
        names = functions_at(machine, path, section,
                             [a for loop in loops for a in loop.addresses], source.name, by_line)
        for loop in loops:
            votes = Counter(kernel_of(names.get(a, []), kernels) for a in loop.addresses)
            votes.pop((None, None), None)
            if votes:
                loop.kernel, loop.variant = votes.most_common(1)[0][0]
        found += loops
    return found


def hottest(loops):
    """{C function of a kernel: the loop where its time goes}, as Loop.heat() orders them."""
    best = {}
    for loop in loops:
        if loop.kernel and (loop.variant not in best or
                            loop.heat() > best[loop.variant].heat()):
            best[loop.variant] = loop
    return best
