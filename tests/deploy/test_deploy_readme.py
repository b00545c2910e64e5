"""Each section of deploy/README.md with commands has a test."""

import tomllib

from deployment import DEPLOY, ROOT


def test_every_section_with_commands_has_a_test():
    sections = DEPLOY.joinpath("README.md").read_text().split("\n## ")
    with_commands = {section.splitlines()[0] for section in sections if "```" in section}
    tests = {
        path.stem: path.read_text()
        for path in DEPLOY.parent.joinpath("tests", "deploy").glob("test_*.py")
    }
    assert with_commands == {"Docker compose", "Slurm", "TLS"}
    assert all(
        any(f'commands("{name}")' in text for text in tests.values()) for name in with_commands
    )


def test_the_extra_contains_the_packages_that_the_scripts_import():
    extras = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {requirement.split(">=")[0] for requirement in extras["deploy"]} == {
        "cryptography",
        "dask-jobqueue",
    }
