"""The command line. Exit codes: 0 done, 1 something is wrong and named, 2 the command was not understood.

Groups and commands are imported when they are used, so that `serve` starts without what only `secrets` needs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

from proxy import __version__
from proxy.errors import ConfigurationError, SluicegateError

if TYPE_CHECKING:
    from proxy.credentials.store import Store


class Command(NamedTuple):
    """Where a command's click object is, and what `--help` says of it without importing it."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final = {
    "serve": Command("proxy.commands.serve", "serve", "Run the proxy in the foreground."),
    "run": Command("proxy.commands.run", "run", "Run a command behind a proxy of its own, without keys."),
    "check": Command("proxy.commands.check", "check", "Check configuration, providers and policies; name every fault."),
    "explain": Command("proxy.commands.explain", "explain", "Say what would be decided for a call, and why."),
    "policy": Command("proxy.commands.policy", "policy", "Test policies; write a first one from an audit log."),
    "doctor": Command("proxy.commands.doctor", "doctor", "Prove what is injected; find clients and files to mind."),
    "firewall": Command("proxy.commands.firewall", "firewall", "Close a pod's other ways out (nftables)."),
    "webhook": Command("proxy.commands.webhook", "webhook", "Put the proxy beside a cluster's pods (admission)."),
    "prepare": Command("proxy.commands.prepare", "prepare", "Lay out an injected pod's files (init container)."),
    "contract": Command(
        "proxy.commands.contract", "contract", "Ask a provider whether it still answers as its file says."
    ),
    "secrets": Command("proxy.secrets_cli", "secrets", "Keep the tenants' credentials."),
    "disconnect": Command("proxy.commands.disconnect", "disconnect", "End a tenant's credential, here and there."),
    "connect": Command("proxy.commands.connect", "connect", "Ask a person for consent and store the grant."),
    "token": Command("proxy.token_cli", "token", "Mint and inspect session tokens."),
    "ledger": Command("proxy.commands.ledger", "ledger", "Settle calls whose outcome is not known."),
    "schema": Command("proxy.commands.schema", "schema", "Print the JSON Schema of a file's format."),
    "ca": Command("proxy.commands.ca", "ca", "Export the interception authority's certificate."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name].module), COMMANDS[cmd_name].attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name].module} has no command of that name")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sluicegate")
@click.pass_context
def cli(context: click.Context) -> None:
    """A credential and egress proxy that stands beside each AI agent."""
    context.obj = _open_store


def _open_store(config: Path | None) -> Store:
    """What `secrets` works on: the store that the configuration names."""
    from proxy.opening import open_store
    from proxy.settings import load

    return open_store(load(config).store)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code; errors become one line each."""
    try:
        result = cli.main(arguments, prog_name="sluicegate", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "sluicegate"
        return _complain(f"{error.format_message()} Try '{command} --help'.", 2)
    except click.Abort:
        return _complain("stopped", 1)
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except ConfigurationError as error:
        for fault in error.faults:
            click.echo(str(fault), err=True)
        return 1
    except SluicegateError as error:
        return _complain(str(error), 1)
    except OSError as error:
        return _complain(_system_error(error), 1)
    return result if isinstance(result, int) else 0


def main() -> NoReturn:
    """Entry point of the console script."""
    sys.exit(run())


def _complain(message: str, code: int) -> int:
    click.echo(f"sluicegate: {message}", err=True)
    return code


def _system_error(error: OSError) -> str:
    text = error.strerror or type(error).__name__
    return f"{error.filename}: {text}" if error.filename else text
