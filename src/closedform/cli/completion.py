"""``closedform completion``: the completion script of a shell.

The script has the names in it, and starts no Python when a key is pressed.
"""

from __future__ import annotations

from closedform.cli.parser import argument, command

HELP = """\
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


@command
class Options:
    """The options of ``closedform completion``."""

    shell: str = argument("", choices=("bash", "zsh", "fish"))


def run(options: Options) -> None:
    """Prints the script."""
    words = _words()
    print(
        _fish(words)
        if options.shell == "fish"
        else (_ZSH if options.shell == "zsh" else "") + _bash(words)
    )


def _words() -> dict[str, tuple[list[str], list[str]]]:
    """The options of each command, and the names that it takes."""
    import closedform as cf
    from closedform.cli.application import COMMANDS, parser_of
    from closedform.cli.sources import library

    names = [*library("schedules"), *library("optimizers")]
    words: dict[str, tuple[list[str], list[str]]] = {}
    for name in COMMANDS:
        command_parser = parser_of(name)
        options = sorted(word for word in command_parser.actions_by_option if word.startswith("--"))
        positionals = [action.dest for action in command_parser.positionals]
        if "framework" in positionals:
            words[name] = options, sorted(cf.frameworks.FRAMEWORKS)
        else:
            words[name] = options, names if {"name", "names"} & set(positionals) else []
    return words


def _bash(words: dict[str, tuple[list[str], list[str]]]) -> str:
    cases = "\n".join(
        f'            {name}) found="{" ".join([*options, *names])}" ;;'
        for name, (options, names) in words.items()
    )
    return _BASH.format(commands=" ".join(words), cases=cases).rstrip("\n")


def _fish(words: dict[str, tuple[list[str], list[str]]]) -> str:
    from closedform.cli.application import COMMANDS

    lines = []
    for name, (options, names) in words.items():
        summary = COMMANDS[name][1]
        lines.append(f"complete -c closedform -n __fish_use_subcommand -a {name} -d '{summary}'")
        within = f"complete -c closedform -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{within} -l {word[2:]}" for word in options]
        if names:
            lines.append(f"{within} -a '{' '.join(names)}'")
    return "\n".join(lines)
