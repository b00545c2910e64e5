"""The first help: commands in groups, in the order in which they are used."""

from __future__ import annotations

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
        "report",
    ),
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
