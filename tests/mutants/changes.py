"""Mutants of a module: its source with one operator, constant, condition, argument, term or statement changed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
FUNCTIONS = {"min": "max", "any": "all", "minimum": "maximum", "zeros_like": "ones_like", "floor": "ceil"}
FUNCTIONS |= {after: before for before, after in FUNCTIONS.items()}
WORDS_ONLY = {"logger", "logging", "warnings"}  # calls of these only tell somebody something
ORDER_FREE = {"isinstance", "issubclass", "getattr", "hasattr", "zip", "cast", "field", "TypeVar"}
TYPES = {"Literal", "Union", "Optional", "Annotated"}
SYMMETRIC = {"min", "max", "maximum", "minimum", "logical_and", "logical_or", "allclose", "isclose", "gcd"}
SIBLINGS = [("low", "high"), ("lower", "upper"), ("min", "max"), ("src", "trg"), ("chosen", "rejected"), ("old", "")]
Change = tuple[ast.AST, str, ast.AST | str, str]  # the node, the kind, its replacement, and what the table shows


@dataclass(frozen=True)
class Mutant:
    """One change to one module.

    Attributes:
        module: Path of the source below the package.
        where: Qualified name of the function or class that is changed, or "" for the module.
        kind: What sort of change it is.
        before: The code that is changed.
        after: What takes its place.
        nth: Number among the changes of this function that read the same.
        lines: First and last line of the statement, whose coverage selects the tests.
        at_import: Whether an import runs the statement, for whoever uses the module.
        source: The source of the mutant.
    """

    module: str
    where: str
    kind: str
    before: str
    after: str
    nth: int
    lines: tuple[int, int]
    at_import: bool
    source: str

    @property
    def name(self) -> str:
        """Identify the mutant by its content: lines around it may come and go."""
        number = f" #{self.nth + 1}" if self.nth else ""
        return f"{self.module} {self.where}: {self.before} -> {self.after}{number}"


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module in the order of its source; those that do not compile are left out."""
    seen: Counter[tuple[str, str, str]] = Counter()
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for where, statement, (node, kind, replacement, after) in _Walk().changes(ast.parse(source)):
        scope, at_import = where
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[node.end_lineno - 1] + node.end_col_offset
        text = replacement if isinstance(replacement, str) else f"({ast.unparse(replacement)})"
        changed = (data[:first] + text.encode() + data[last:]).decode()
        try:
            compile(changed, module, "exec")
        except SyntaxError:
            continue
        before = ast.unparse(node)
        key = (scope, before, after)
        yield Mutant(module, scope, kind, before, after, seen[key], _header_lines(statement), at_import, changed)
        seen[key] += 1


def _header_lines(statement: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement without its body."""
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else statement.end_lineno
    return statement.lineno, max(statement.lineno, last)


Scope = tuple[str, bool]  # the qualified name, and whether an import runs what stands there


class _Walk:
    """Go through a module, past what no test should decide: annotations, messages, type-checking imports."""

    def changes(self, tree: ast.Module) -> Iterator[tuple[Scope, ast.stmt, Change]]:
        for statement in tree.body:
            yield from self._of_statement(statement, ("", True))

    def _of_statement(self, node: ast.stmt, scope: Scope) -> Iterator[tuple[Scope, ast.stmt, Change]]:
        if _is_left_alone(node):
            return
        name, at_import = scope
        if hasattr(node, "name"):
            name = f"{name}.{node.name}".lstrip(".")
        body = (name, at_import and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for change in _statement_changes(node):
            yield (name, at_import), node, change
        for child in _children(node):
            if isinstance(child, ast.stmt):
                yield from self._of_statement(child, body)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                for statement in child.body:
                    yield from self._of_statement(statement, body)
            else:
                for change in _expression_changes(child):
                    yield (name, at_import), node, change


def _is_left_alone(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _root(node.value.func) in WORDS_ONLY:
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        return _root(node.value.value) in TYPES
    return isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Children of a node, less annotations, decorators, messages, and `strict=True`, which asserts."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield child


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _statement_changes(node: ast.stmt) -> Iterator[Change]:
    targets = getattr(node, "targets", [])
    stored = isinstance(node, ast.Assign) and isinstance(targets[0], ast.Attribute | ast.Subscript)
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if stored or called or isinstance(node, ast.AugAssign):
        yield node, "statement removed", "pass", "pass"
    if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        changed = ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
        yield node, "operator", ast.unparse(changed), ast.unparse(changed)
    if isinstance(node, ast.Break | ast.Continue):
        other = "continue" if isinstance(node, ast.Break) else "break"
        yield node, "statement", other, other
    if isinstance(node, ast.If | ast.While) and not _flips_by_comparison(node.test):
        yield _replaced(node.test, "condition negated", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break):
        yield _replaced(node.test, "guard removed", ast.Constant(False))


def _flips_by_comparison(test: ast.expr) -> bool:
    """True where the mutant of the comparison is the negation already."""
    opposites = ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], opposites)


def _expression_changes(node: ast.AST) -> Iterator[Change]:
    yield from _expression_change(node)
    for child in _children(node):
        yield from _expression_changes(child)


def _replaced(node: ast.expr, kind: str, other: ast.expr) -> Change:
    return node, kind, other, ast.unparse(other)


def _expression_change(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield _replaced(node, "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))
        yield _replaced(node, "term dropped", node.left)
        if isinstance(node.op, ast.Add | ast.Mult):
            yield _replaced(node, "term dropped", node.right)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _replaced(node, "operator", ast.BoolOp(other, node.values))
        for dropped in range(len(node.values)):
            rest = [value for number, value in enumerate(node.values) if number != dropped]
            yield _replaced(node, "term dropped", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        ops = [OPERATORS[type(node.ops[0])](), *node.ops[1:]]
        yield _replaced(node, "comparison", ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield _replaced(node, "operator", node.operand)
    elif isinstance(node, ast.IfExp) and not _flips_by_comparison(node.test):
        yield _replaced(node, "condition negated", ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _replaced(node, "constant", ast.Constant(not node.value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield _replaced(node, "constant", ast.Constant(node.value + 1))
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield _replaced(node.ifs[0], "filter removed", ast.Constant(True))
    elif isinstance(node, ast.Call):
        yield from _call_changes(node)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and (sibling := _sibling(node.attr)):
        yield _replaced(node, "sibling", ast.Attribute(node.value, sibling, ast.Load()))


def _sibling(name: str) -> str:
    """Name of what stands beside an attribute: `clip_low` for `clip_high`, `logprobs` for `old_logprobs`; or ""."""
    words = name.split("_")
    for pair in SIBLINGS:
        for this, other in (pair, pair[::-1]):
            if this and this in words and len(words) > 1:
                return "_".join(word for word in [other if w == this else w for w in words] if word)
    return ""


def _call_changes(node: ast.Call) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else _root(node.func)
    if name in FUNCTIONS:
        if isinstance(node.func, ast.Attribute):
            other: ast.expr = ast.Attribute(node.func.value, FUNCTIONS[name], ast.Load())
        else:
            other = ast.Name(FUNCTIONS[name])
        yield _replaced(node, "function", ast.Call(other, node.args, node.keywords))
    first_two = node.args[:2]
    plain = len(first_two) == 2 and not any(isinstance(arg, ast.Starred) for arg in first_two)
    if plain and name not in ORDER_FREE | SYMMETRIC and ast.unparse(first_two[0]) != ast.unparse(first_two[1]):
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        yield _replaced(node, "arguments swapped", ast.Call(node.func, swapped, node.keywords))
    if name[:1].islower() and name not in ORDER_FREE:  # a constructor would only miss its argument
        for dropped in node.keywords:
            if dropped.arg is not None:
                rest = [keyword for keyword in node.keywords if keyword is not dropped]
                yield _replaced(node, "argument dropped", ast.Call(node.func, node.args, rest))
