"""``btnkm completion``: a script for the shell, made from the parser of the program."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from .options import command_parser

_EXAMPLES = """\
  eval "$(btnkm completion bash)"                              # in ~/.bashrc
  btnkm completion zsh > "${fpath[1]}/_btnkm"                  # in a folder of zsh's fpath
  btnkm completion fish > ~/.config/fish/completions/btnkm.fish
"""


class Option(NamedTuple):
    """An option, or what stands at a place."""

    flags: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    help: str


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "completion",
        "Print a script that lets a shell complete commands, options, their values and files.",
        _EXAMPLES,
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from .program import build_parser

    print(SCRIPTS[arguments.shell](dict(_commands(build_parser()))), end="")
    return 0


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, tuple[str, list[Option]]]]:
    """Yield every command with its help and options."""
    from . import COMMANDS

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, own in action.choices.items():
                options = [_option(one) for one in own._actions if one.help != argparse.SUPPRESS]
                yield name, (COMMANDS[name], options)


def _option(action: argparse.Action) -> Option:
    text = (action.help or "").split(" (default")[0].replace("%(default)s", str(action.default))
    choices = tuple(map(str, action.choices or ()))
    return Option(tuple(action.option_strings), action.nargs != 0, choices, text)


def _bash(commands: dict[str, tuple[str, list[Option]]]) -> str:
    values, flags, words = [], [], []
    for name, (_, options) in commands.items():
        for one in options:
            if one.flags and one.takes_value and one.choices:
                signs = "|".join(f'"{name} {flag}"' for flag in one.flags)
                values.append(f"        {signs}) words={shlex.quote(' '.join(one.choices))} ;;")
            elif not one.flags and one.choices:
                words.append(f"        {name}) words={shlex.quote(' '.join(one.choices))} ;;")
        every = " ".join(flag for one in options for flag in one.flags)
        flags.append(f"        {name}) words={shlex.quote(every)} ;;")
    return "\n".join(
        [
            "# completion of btnkm for bash",
            "_btnkm() {",
            "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}",
            "    local command= word words=",
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            "        if [[ $word != -* ]]; then command=$word; break; fi",
            "    done",
            "    COMPREPLY=()",
            '    case "$command $previous" in',
            *values,
            "    esac",
            "    if [[ -z $words && -z $command ]]; then",
            f"        words={shlex.quote(' '.join([*commands, '--help', '--version']))}",
            "    elif [[ -z $words && $current == -* ]]; then",
            '        case "$command" in',
            *(f"    {line}" for line in flags),
            "        esac",
            "    elif [[ -z $words ]]; then",
            '        case "$command" in',
            *(f"    {line}" for line in words),
            "        esac",
            "    fi",
            "    if [[ -n $words ]]; then",
            '        COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "        return",
            "    fi",
            "    compopt -o filenames 2>/dev/null",
            "    local IFS=$'\\n'",
            '    COMPREPLY=($(compgen -f -- "$current"))',
            "}",
            "complete -F _btnkm btnkm",
            "",
        ]
    )


def _zsh(commands: dict[str, tuple[str, list[Option]]]) -> str:
    listed = [f"        {_quoted(f'{name}:{told}')}" for name, (told, _) in commands.items()]
    cases = []
    for name, (_, options) in commands.items():
        lines = []
        for one in options:
            value = f"({' '.join(one.choices)})" if one.choices else "_files"
            told = one.help.replace("[", "(").replace("]", ")").replace(":", ",")
            if not one.flags:
                lines.append(_quoted(f"*:{told}:{value}"))
                continue
            end = f":value:{value}" if one.takes_value else ""
            lines += [_quoted(f"{flag}[{told}]{end}") for flag in one.flags]
        body = " \\\n                ".join(lines)
        cases.append(f"        {name})\n            _arguments \\\n                {body} ;;")
    return "\n".join(
        [
            "#compdef btnkm",
            "_btnkm() {",
            "    local -a commands",
            "    commands=(",
            *listed,
            "    )",
            "    if (( CURRENT == 2 )); then",
            "        _describe command commands",
            "        return",
            "    fi",
            "    local command=$words[2]",
            "    shift words",
            "    (( CURRENT-- ))",
            "    case $command in",
            *cases,
            "    esac",
            "}",
            "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then",
            '    _btnkm "$@"',
            "else",
            "    compdef _btnkm btnkm",
            "fi",
            "",
        ]
    )


def _fish(commands: dict[str, tuple[str, list[Option]]]) -> str:
    lines = ["# completion of btnkm for fish"]
    for name, (told, _) in commands.items():
        lines.append(f"complete -c btnkm -n __fish_use_subcommand -f -a {name} -d {_quoted(told)}")
    for name, (_, options) in commands.items():
        when = f"complete -c btnkm -n '__fish_seen_subcommand_from {name}'"
        for one in options:
            parts = [when]
            for flag in one.flags:
                parts.append(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}")
            if one.choices:
                parts.append(f"-x -a {_quoted(' '.join(one.choices))}")
            elif one.flags and one.takes_value:
                parts.append("-r")
            elif not one.flags:
                continue
            lines.append(" ".join([*parts, f"-d {_quoted(one.help)}"]))
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """Return text within single quotation marks, as all shells read it."""
    return "'" + text.replace("'", "’") + "'"


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
