"""The help: commands in sections, in the order in which they are used, and options in groups."""

from __future__ import annotations

from typing import Any

import click

SECTIONS = {
    "Start": ("demo",),
    "From a table to predictions": ("ingest", "plan", "fit", "evaluate", "predict"),
    "Jobs: fits under way, stopped or done": (
        "status",
        "jobs",
        "wait",
        "abort",
        "cancel",
        "resume",
        "update",
        "compare",
        "report",
    ),
    "Shell": ("completion",),
}


class Sections(click.Group):
    """A group whose help shows its commands in sections; those of none come last."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the sections."""
        known = [name for names in SECTIONS.values() for name in names]
        return [*(name for name in known if name in self.commands), *sorted(self.commands.keys() - set(known))]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A table for each section, their columns aligned."""
        sections = {title: [name for name in names if name in self.commands] for title, names in SECTIONS.items()}
        sections["Other"] = [name for name in self.list_commands(ctx) if not any(name in n for n in sections.values())]
        width = max(map(len, self.commands))
        for title, names in sections.items():
            rows = [(f"{name:<{width}}", self.commands[name].get_short_help_str(limit=80)) for name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


SHOWN = ("everyday", "cluster")
"""Groups of options of a fit that ``--help`` shows; ``--help-all`` shows all."""


class GroupedOption(click.Option):
    """An option of the table, with the name of its group."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help shows its options in groups.

    ``--help`` shows the groups of ``SHOWN`` and the command's own options, ``--help-all`` every group.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options and exit.",
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A section for each group of options that is shown; the command's own options come last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        own: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                rows = groups.setdefault(param.group, []) if isinstance(param, GroupedOption) else own
                rows.append(record)
        shown = groups if ctx.meta.get(ALL) else {name: rows for name, rows in groups.items() if name in SHOWN}
        for name, rows in shown.items():
            with formatter.section(name.capitalize()):
                formatter.write_dl(rows)
        with formatter.section("Other options"):
            formatter.write_dl(own)
        hidden = [name for name in groups if name not in shown]
        if hidden:
            count = sum(len(groups[name]) for name in hidden)
            formatter.write_paragraph()
            formatter.write_text(f"--help-all shows {count} more options: {', '.join(hidden)}.")


ALL = "partirvm.help_all"
"""Key of the context's ``meta``: whether the help shows all options."""


def _show_all(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
