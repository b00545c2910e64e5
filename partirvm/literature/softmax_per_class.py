"""The softmax with an α for each class and vector, as Tipping (2001), eq. 28, has it.

``register`` makes ``RVMClassifier(multi_class="multinomial-per-class")`` possible in this process: it adds a link to
``core.link.LINKS`` and a likelihood to ``likelihoods.LIKELIHOODS``. A process that loads such a model must call it,
too. Like the other softmax it omits the blocks of the Hessian between classes.
"""

from __future__ import annotations

from partirvm.core.link import LINKS, Softmax
from partirvm.likelihoods import LIKELIHOODS
from partirvm.likelihoods.classes import ClassLikelihood

NAME = "multinomial-per-class"
"""Name of this likelihood, a value of ``multi_class``."""


class SoftmaxPerClass(Softmax):
    """The link of the softmax, with separate α."""

    name = NAME
    shared_alpha = False


def register() -> str:
    """Add link and likelihood to the registries, and return their name."""
    LINKS[NAME] = SoftmaxPerClass()
    LIKELIHOODS[NAME] = ClassLikelihood(NAME, (NAME,), NAME)
    return NAME
