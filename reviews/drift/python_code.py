"""Facts of Python source, read by `ast`: names, defaults, routes and symbols of a module."""

from __future__ import annotations

import ast
import re
import warnings

from reviews.drift.code_facts import ANY_METHOD, Code, Route

_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_VERBS = frozenset(("get", "post", "put", "patch", "delete", "head", "options"))


def read(text: str) -> Code | None:
    """Return what a module says, or None where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    reads: set[str] = set()
    defaults: list[tuple[str, str | None]] = []
    routes: list[Route] = []
    is_dynamic = False
    prefixes = _prefixes(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(value)) if _NAME.fullmatch(value):
                reads.add(value)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                defaults += _default(name, value)
                reads.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                defaults += _parameters(node.args)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        defaults += _default(key.value, value)
            case ast.Call():
                defaults += _call_defaults(node)
                found = _route(node, prefixes)
                is_dynamic |= found is None
                routes += found or ()
    symbols, is_open = _symbols(tree)
    return Code(frozenset(reads), tuple(defaults), tuple(routes), is_dynamic, frozenset(symbols), is_open)


def _default(name: str, value: ast.expr) -> list[tuple[str, str | None]]:
    """Return the default that a definition gives; that of a call is the one it is given."""
    if isinstance(value, ast.Call):
        given = [k.value for k in value.keywords if k.arg in ("default", "default_value")]
        return [(name, _literal(given[0]))] if given else []
    if isinstance(value, ast.Dict | ast.List | ast.Tuple | ast.Set | ast.Lambda):
        return []
    return [(name, _literal(value))]


def _literal(value: ast.expr) -> str | None:
    match value:
        case ast.Constant(value=constant) if constant is not ...:
            return str(constant)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return str(-number)
    return None


def _parameters(args: ast.arguments) -> list[tuple[str, str | None]]:
    plain = [*args.posonlyargs, *args.args]
    pairs = [*zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [(arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value]
    return [found for arg, value in pairs for found in _default(arg.arg, value)]


def _call_defaults(call: ast.Call) -> list[tuple[str, str | None]]:
    """Return the default that a call gives a key.

    Such as `get("KEY", 3)` or `add_argument("--key", default=3)`.
    """
    match call.args:
        case [ast.Constant(value=str(key)), *others] if re.fullmatch(r"-{0,2}[A-Za-z_][\w-]*", key):
            words = (str(one.value) for one in call.args if isinstance(one, ast.Constant))
            key = next((word for word in words if word.startswith("--")), key)
            given = [k.value for k in call.keywords if k.arg == "default"]
            if not given and _function(call) in ("get", "getenv", "pop", "setdefault"):
                given = others
            return [(key, _literal(given[0]))] if given else []
    return []


def _function(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _prefixes(tree: ast.Module) -> dict[str, str]:
    """Return the prefixes of the routers that a file makes.

    Such as `router = APIRouter(prefix="/users")`.
    """
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(keywords=keywords)):
                for one in keywords:
                    if one.arg in ("prefix", "url_prefix") and isinstance(one.value, ast.Constant):
                        found[name] = str(one.value.value)
    return found


def _route(call: ast.Call, prefixes: dict[str, str]) -> list[Route] | None:
    """Return the routes that a call registers; None where its path is no literal."""
    name = _function(call)
    match call:
        case ast.Call(func=ast.Name(id="path"), args=[ast.Constant(value=str(path)), view, *_]):
            is_mount = isinstance(view, ast.Call) and _function(view) == "include"
            return [] if is_mount else [Route(ANY_METHOD, f"/{path}")]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner))):
            prefix = prefixes.get(owner, "")
        case ast.Call(func=ast.Attribute()):
            owner = prefix = ""
        case _:
            return []
    first = call.args[0] if call.args else None
    if name in ("add_url_rule", "add_api_route", "add_route"):
        return [Route(ANY_METHOD, prefix + str(first.value))] if isinstance(first, ast.Constant) else None
    is_app = re.search(r"app|router|api|bp|blueprint|server|route", owner, re.IGNORECASE)
    if not is_app or name not in {*_VERBS, "route", "websocket"} or first is None:
        return []
    if not isinstance(first, ast.Constant):
        return None if name == "route" else []
    if not isinstance(first.value, str):
        return []
    path = prefix + first.value
    if name != "route":
        return [Route(name.upper(), path)] if first.value.startswith("/") or prefix else []
    methods = next((k.value for k in call.keywords if k.arg == "methods"), None)
    if methods is None:
        return [Route("GET", path)]
    if not isinstance(methods, ast.List | ast.Tuple | ast.Set):
        return [Route(ANY_METHOD, path)]
    return [Route(str(one.value).upper(), path) for one in methods.elts if isinstance(one, ast.Constant)]


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _symbols(tree: ast.Module) -> tuple[set[str], bool]:
    """Return the names that a module's top level defines, and whether it may define others."""
    names: set[str] = set()
    is_open = False
    queue: list[ast.stmt] = list(tree.body)
    while queue:
        node = queue.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                is_open |= name == "__getattr__"
            case ast.Import(names=aliases):
                names.update((one.asname or one.name.partition(".")[0]) for one in aliases)
            case ast.ImportFrom(names=aliases):
                is_open |= any(one.name == "*" for one in aliases)
                names.update(one.asname or one.name for one in aliases)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(*map(_names, targets))
            case _:
                if isinstance(node, ast.Expr | ast.For | ast.While):
                    is_open |= not _names(node).isdisjoint(("globals", "setattr", "exec", "vars"))
                for block in ("body", "orelse", "finalbody"):
                    queue += getattr(node, block, [])
                for handler in getattr(node, "handlers", []):
                    queue += handler.body
    return names, is_open
