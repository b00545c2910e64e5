"""Sphinx configuration of the site. ``.ci/docs`` builds it; warnings are errors."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import partirvm

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "partirvm"
author = "The partirvm developers"
copyright = f"2026, {author}"
version = release = partirvm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "option_tables",
    "command_pages",
    "project_files",
    "error_messages",
]

source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = [
    "_build",
    "_extensions",
    "_templates",
    "figures",
    "gallery",
    "gallery_built/**/*.ipynb",
    *("mathjax/[!ito]*", "mathjax/tex-[ms]*", "mathjax/*full*"),  # of MathJax: TeX to HTML alone
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
add_module_names = False
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

plot_include_source = False
plot_html_show_formats = False
plot_html_show_source_link = False
plot_formats = [("png", 150)]
plot_basedir = str(HERE / "figures")

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "gallery_built",
    "filename_pattern": "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1,
    "parallel": True,
    "reset_modules": ("matplotlib", "gallery_process.spawn"),
    "write_computation_times": False,
    "plot_gallery": os.environ.get("PARTIRVM_GALLERY", "1") == "1",
    "doc_module": ("partirvm",),
    "backreferences_dir": "api/generated/backreferences",
    "reference_url": {"partirvm": None},
}

templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "partirvm"
# MathJax comes from a package and is copied beside the pages, which request nothing from other
# hosts.
html_static_path = [
    "_static",
    str(Path(find_spec("sphinx-mathjax-offline").origin).parent / "static"),
]
mathjax_path = "mathjax/tex-chtml.js"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {
    page: []
    for page in (
        "start",
        "why",
        "faq",
        "reliability",
        "troubleshooting",
        "benchmarks",
        "developers",
    )
}
html_theme_options = {
    "logo": {"text": "partirvm"},
    "github_url": "https://github.com/partirvm/partirvm",
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_context = {"default_mode": "auto"}


def without_foreign_labels(app, what, name, obj, options, lines):
    """Turn references of docstrings that scikit-learn's classes pass on, to labels of its own site,
    into plain text."""
    lines[:] = [re.sub(r":ref:`([^`<]+?)(?: <[^>]+>)?`", r"*\1*", line) for line in lines]


def setup(app):
    """Register what changes docstrings."""
    app.connect("autodoc-process-docstring", without_foreign_labels)
