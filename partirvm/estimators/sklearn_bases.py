"""scikit-learn's bases of estimators, with types for a type checker.

scikit-learn is not typed, and a class with an untyped base accepts every attribute: a type checker would not report a
misspelt one. The classes that it reads here state what the estimators use; at run time the bases are scikit-learn's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:

    class BaseEstimator:
        """Parameters, requests of metadata, and tags."""

        _metadata_request: Any

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __sklearn_clone__(self) -> Self: ...
        def __getstate__(self) -> dict[str, Any]: ...

    class RegressorMixin(BaseEstimator):
        """Tags of a regression."""

    class ClassifierMixin(BaseEstimator):
        """Tags of a classification."""

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

__all__ = ["BaseEstimator", "ClassifierMixin", "RegressorMixin"]
