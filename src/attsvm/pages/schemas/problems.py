"""The fields of the results of ``attsvm problem``, ``solve``, ``train`` and ``profile``."""

from typing import Any

from attsvm.pages.schemas.model import CommandResult, Fields, Nested, Number, path
from attsvm.results import Status


class ProblemFileFields(Fields):
    source: str  # the file as in the command
    sha256: str  # hash of names, shapes and contents of the arrays of the problem


class OptimalTokensFields(Fields):
    status: dict[str, int]  # number of problems with each status
    value: Number  # norm of the solution of a single problem; null for a batch, and if infeasible


class ProblemResult(CommandResult, schema="attsvm.problem/1"):
    data: ProblemFileFields  # the problem
    batch_shape: list[int]  # shape of the leading batch axes
    sequences: int = path("num_sequences")  # number of sequences n
    tokens: int = path("num_tokens")  # number of tokens T of a sequence, with padding
    dim: int  # dimension d of a token
    key_dim: int  # dimension of a key; d without keys
    query_dim: int | None  # dimension of a query; null without queries
    queries_per_sequence: int  # number of queries of a sequence, with padding
    # number of classes; null for labels +1 and -1, and without labels
    classes: int | None = path("num_classes")
    attention_heads: int | None = path("num_heads")  # number of attention heads; null for one
    allowed_tokens: Number  # share of the tokens that the mask allows
    active_queries: Number  # share of the queries that the query mask keeps
    shapes: dict[str, list[int]]  # shape of each array
    # number of unmasked queries with each label; null without labels
    labels: dict[str, int] | None
    # the Frobenius Att-SVM of the optimal tokens; null without a head and labels +1 and -1
    optimal_tokens: OptimalTokensFields | None


class SolveResult(CommandResult, schema="attsvm.solve/1"):
    threads: int | None  # the limit set by --threads; null without one
    data: ProblemFileFields  # the problem
    norm: str = path("norm.name")  # name of the norm
    slack: Number  # the constant C of the soft margin; null for the hard margin
    rank: int | None  # largest rank of the weights; null without a limit
    # index of the selected token of each query, from 0, or a mask of the tokens that are kept together
    selected: Nested[int | bool]
    relaxed: Nested[bool] | None  # whether each query needs a margin of 0 only; null if none does
    status: str | Nested[str]  # optimal, infeasible or inaccurate
    value: float | Nested[Number] | None  # norm of the direction; null if infeasible
    margin: float | Nested[Number] | None  # margin of the direction divided by its norm; null if infeasible
    # objective value: the norm, or that of the soft-margin problem; null if infeasible
    objective: float | Nested[Number] | None
    gap: float | Nested[Number] | None  # relative duality gap; null if infeasible
    # largest violation of a constraint, divided by the norms of its row and of the direction
    violation: float | Nested[Number] | None
    raw_violation: float | Nested[Number] | None  # largest violation of a constraint
    bound: float | Nested[Number] | None  # Farkas bound: a lower bound of the norm of any solution; 0 if none was found
    stats: dict[str, Any]  # method and the reason for it, steps and seconds
    support: Nested[int] | None  # indices of the support tokens
    direction: Nested[Number]  # the solution, shape (d_k, d_q), or (d_k) for a prompt; null if infeasible


class HypothesisFields(Fields):
    name: str  # the key of the hypothesis
    statement: str  # what is assumed
    holds: bool | None  # null if it was not decided
    number: Number  # what was found
    unit: str  # of the number


class PredictionFields(Fields):
    norm: str = path("norm.name")  # norm of the Att-SVM
    standing: str  # proved, measured, conjecture or none
    source: str  # the reference, or the measurement
    distance: float | list[Any] | None  # with a penalty, the distance of the weights to the minimiser, of each trial
    hypotheses: list[HypothesisFields]  # name, statement, whether it holds (null: not decided), number and unit


class TrainResult(CommandResult, schema="attsvm.train/1"):
    seed: int  # seed of the initial factors and of mini-batches
    threads: int | None  # the limit set by --threads; null without one
    data: ProblemFileFields  # the problem
    attention: str  # combined, factored, prompt or key_prompt
    map: str  # from logits to attention: softmax or another name
    penalty: Number | str  # the factor of the squared norm of the parameters that was added to the loss
    fixed: list[Any]  # the parameters that kept their initial values
    head: str  # name of the prediction head
    optimizer: str  # the optimiser with its options
    norm_of_optimizer: str | None  # name of the norm whose Att-SVM theory predicts; null if none is known
    trials: int  # number of trials
    status: dict[str, int]  # number of trials with each status
    steps: int  # number of steps made
    loss: Number  # loss after the last step, mean over the trials
    median_largest_probability: Number  # median over the queries of all trials of the largest attention
    lowest_largest_probability: Number  # minimum over the queries of all trials of the largest attention
    weights_norm: Number  # Frobenius norm of W, KQ', p or Wp, median over the trials
    log_scale: Number  # logarithm of a further factor of the weights; 0 while their norm is a floating-point number
    trials_past_precision: int  # number of trials with a logit above 1e8, where rounding affects the run
    precise_until: int | None  # first recorded step at which a logit had exceeded 1e8; null if none did
    selected: Nested[int] | None  # token of each query, from 0; null for several trials, and under the sigmoid
    seconds: Number  # wall time of training, in seconds
    prediction: PredictionFields | None  # the limit that is predicted, with --predict; null without it


class ProfileResult(CommandResult, schema="attsvm.profile/1"):
    optimizer: str  # the optimiser as in the command
    # that of --learning-rate, or what was found for the first steps; null if the optimiser has none
    learning_rate: Number
    attention: str  # combined (matrix W) or prompt (vector p)
    steps: int  # number of steps of each run at most
    batch_size: int | None  # number of sequences in a step; null for all of them (full batch)
    status: Status  # finished, or interrupted
    verdict: str  # name of the norm whose margin the optimiser maximises, or inconclusive
    reason: str  # the reason for the verdict
    cause: str  # some words for why it is inconclusive, such as "none of these norms"; empty if it is not
    chosen: str  # the schedule that the verdict rests on
    # whether a run on the gradient itself ends elsewhere, because the gradient becomes too small for the
    # optimiser
    underflows: bool
    threads: int | None  # the limit set by --threads; null without one
    norms: list[str]  # names of the norms
    schedules: list[str]  # names of the step schedules
    steps_made: list[int]  # number of steps that each schedule made before it ended
    mean_ratios: Nested[Number] = path("mean")  # mean margin ratio, shape (schedules, norms)
    ratios: Nested[Number]  # margin ratio, shape (schedules, problems, norms); null where it is undefined
    # margin ratio of a run on the gradient itself, shape (problems, norms); null without such a run, which is
    # made only if the profile is conclusive
    raw_ratios: Nested[Number] | None
    # share of the problems in which every query is saturated (each dropped probability at most 1e-6), for each
    # schedule
    share_decided: list[Number]
    # median over the problems of the largest change of a logit in a late step, for each schedule
    median_logit_change: list[Number]
