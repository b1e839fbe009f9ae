"""``closedform completion``: the completion script of a shell.

The script has the names in it, and starts no Python when a key is pressed.
"""

from __future__ import annotations

import importlib

from closedform.cli.parser import Parser

_HELP = """\
Print the script that completes commands, options and names in a shell.

For zsh, the folder of the script must be in fpath.

examples:
  closedform completion bash > ~/.local/share/bash-completion/completions/closedform
  closedform completion zsh > ~/.zfunc/_closedform
  closedform completion fish > ~/.config/fish/completions/closedform.fish
"""

_BASH = """\
_closedform() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" found=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        found="{commands}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$found" -- "$word"))
}}
complete -o default -F _closedform closedform
"""

_ZSH = """\
#compdef closedform
autoload -U +X bashcompinit && bashcompinit
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP)
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    return command


def run(*, shell: str) -> None:
    """Prints the script."""
    words = _words()
    print(_fish(words) if shell == "fish" else (_ZSH if shell == "zsh" else "") + _bash(words))


def _words() -> dict[str, tuple[list[str], list[str]]]:
    """The options of each command, and the names that it takes."""
    import closedform as cf
    from closedform.cli.application import COMMANDS
    from closedform.cli.sources import library

    names = [*library("schedules"), *library("optimizers")]
    words: dict[str, tuple[list[str], list[str]]] = {}
    for command, (module, _) in COMMANDS.items():
        command_parser: Parser = importlib.import_module(f"closedform.cli.{module}").parser(command)
        options = sorted(name for name in command_parser.actions_by_option if name.startswith("--"))
        positionals = [action.dest for action in command_parser.positionals]
        if "framework" in positionals:
            words[command] = options, sorted(cf.frameworks.FRAMEWORKS)
        else:
            words[command] = options, names if {"name", "names"} & set(positionals) else []
    return words


def _bash(words: dict[str, tuple[list[str], list[str]]]) -> str:
    cases = "\n".join(
        f'            {command}) found="{" ".join([*options, *names])}" ;;'
        for command, (options, names) in words.items()
    )
    return _BASH.format(commands=" ".join(words), cases=cases).rstrip("\n")


def _fish(words: dict[str, tuple[list[str], list[str]]]) -> str:
    from closedform.cli.application import COMMANDS

    lines = []
    for command, (options, names) in words.items():
        summary = COMMANDS[command][1]
        lines.append(f"complete -c closedform -n __fish_use_subcommand -a {command} -d '{summary}'")
        within = f"complete -c closedform -n '__fish_seen_subcommand_from {command}'"
        lines += [f"{within} -l {name[2:]}" for name in options]
        if names:
            lines.append(f"{within} -a '{' '.join(names)}'")
    return "\n".join(lines)
