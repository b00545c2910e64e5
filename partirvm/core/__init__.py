from partirvm.core.class_correction import Correction
from partirvm.core.diagnostics import STATED_LEVELS, ClassDiagnostics, NumberDiagnostics
from partirvm.core.held_back import FOLDS, LEVEL_FOLDS, folds_of, level_folds, sampled_rows
from partirvm.core.left_out import Calibration, LeftOut
from partirvm.core.link import LINKS, LogisticBlock, moderated
from partirvm.core.local_quantiles import LocalQuantiles, QuantileCurves
from partirvm.core.moments import ColumnMoments, Moments
from partirvm.core.posterior import factorise, own_factors
from partirvm.core.predictive import quantile
from partirvm.core.priors import FLAT, GammaDensity, Prior, entry_precision
from partirvm.core.pruning import least_loss
from partirvm.core.ramp import LeftOutClasses, Ramp
from partirvm.core.sampling import LargestErrors, Purpose, random_order, stream
from partirvm.core.scores import ClassScores, Scores
from partirvm.core.solvers import SOLVERS
from partirvm.core.statistics import GramBlock, GramStatistics, TreeSum
from partirvm.core.termination import StopRule, Termination
from partirvm.core.tied import Tied
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR, HyperState, StepInfo, maximise

__all__ = [
    "ALPHA_FLOOR",
    "FLAT",
    "FOLDS",
    "LEVEL_FOLDS",
    "LINKS",
    "NOISE_FLOOR",
    "SOLVERS",
    "STATED_LEVELS",
    "Calibration",
    "ClassDiagnostics",
    "ClassScores",
    "ColumnMoments",
    "Correction",
    "GammaDensity",
    "GramBlock",
    "GramStatistics",
    "HyperState",
    "LargestErrors",
    "LeftOut",
    "LeftOutClasses",
    "LocalQuantiles",
    "LogisticBlock",
    "Moments",
    "NumberDiagnostics",
    "Prior",
    "Purpose",
    "QuantileCurves",
    "Ramp",
    "Scores",
    "StepInfo",
    "StopRule",
    "Termination",
    "Tied",
    "TreeSum",
    "entry_precision",
    "factorise",
    "folds_of",
    "least_loss",
    "level_folds",
    "maximise",
    "moderated",
    "own_factors",
    "quantile",
    "random_order",
    "sampled_rows",
    "stream",
]
