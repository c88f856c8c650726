"""The fields of the results of ``attsvm fit``."""

from attsvm.pages.class_report import ClassReportFields
from attsvm.pages.schemas.model import CommandResult, Fields, Missing, Nested, Number, path
from attsvm.results import Status


class FitDataFields(Fields):
    source: str = path("data")  # the source as in the command: a name, a file or an import path
    sha256: str = path("problem.data_hash")  # hash of names, shapes and contents of the arrays of the problem
    classes: list[str | int] | None  # names of the labels +1 and -1, such as the two digits; null if they have none
    sequences: int = path("problem.num_sequences")  # number of sequences n, before the split
    tokens: int = path("problem.num_tokens")  # number of tokens T of a sequence, with padding
    dim: int = path("problem.dim")  # dimension d of a token
    queries: int | None  # number of queries Q of a sequence, with padding; null without a query axis
    train: int = path("train.num_sequences")  # number of training sequences
    test: int | None  # number of test sequences
    train_outputs: int  # number of training outputs that an accuracy counts: one for each unmasked query
    test_outputs: int  # number of test outputs that an accuracy counts: one for each unmasked query
    test_rows: list[int]  # indices of the test sequences, in increasing order


class FitTrainingFields(Fields):
    attention: str  # prompt (vector p) or combined (matrix W)
    head: str  # trained (together with the attention) or fixed
    head_from: str  # where the initial head comes from
    optimizer: str  # name of the optimiser
    learning_rate: Number  # size of the first step
    step_size: str  # rule of the step size: constant, or a formula of learning_rate and step
    loss: Number  # mean logistic loss on the training data, at the end
    scale: str  # of the tokens: columns (each divided by its own spread) or common (one number for all)
    steps: int  # number of requested steps; of an AttentionClassifier at most so many are made
    test_fraction: Number  # share of each class that was set apart for testing
    steps_done: int  # number of steps made; of an AttentionClassifier those up to the weights that early stopping keeps
    norm: Number  # Frobenius norm of W, or Euclidean norm of p, at the end
    # first recorded step at which a logit had exceeded 1e8, so that rounding affects the run; null if none did
    precise_until: int | None
    seconds: Number  # wall time of training, compilation included, in seconds


class FitAccuracyFields(Fields):
    baseline: str  # name of the baseline
    train: Number  # accuracy of the layer on the training data
    # 95 % Wilson interval, lower and upper end, of train; each sequence counts once
    train_interval: list[Number] | None
    baseline_train: Number  # accuracy of the baseline on the training data, with a cross-validated penalty
    # 95 % Wilson interval, lower and upper end, of baseline_train; each sequence counts once
    baseline_train_interval: list[Number] | None
    test: Number  # accuracy of the layer on the test data; null without test data
    # 95 % Wilson interval, lower and upper end, of test; each sequence counts once; null without test data
    test_interval: list[Number] | None
    baseline_test: Number  # accuracy of the baseline on the test data; null without test data
    # 95 % Wilson interval, lower and upper end, of baseline_test; each sequence counts once; null without test
    # data
    baseline_test_interval: list[Number] | None


class FitReportFields(Fields):
    train: ClassReportFields  # of the training data
    test: ClassReportFields | None  # of the test data; null without test data


class FitSaturationFields(Fields):
    median_largest_probability: Number  # median over the queries
    share_above_threshold: Number  # share of the queries at or above the threshold
    threshold: Number  # the attention counts as saturated if the median is at least this
    soft: bool  # whether the median is below the threshold; no direction error is reported then
    lowest_largest_probability: Number  # minimum over the queries


class RightFields(Fields):
    train: Number  # share of the training sequences in which it does
    train_interval: list[Number] | None  # 95 % Wilson interval, lower and upper end, of train
    test: Number | Missing  # share of the test sequences in which it does
    test_interval: list[Number] | Missing | None  # 95 % Wilson interval, lower and upper end, of test


class SelectionFields(Fields):
    selected: Nested[int] | None  # token of largest attention, from 0, shape (n) or (n, Q); -1 for padded queries
    counts: list[int]  # number of queries that select each of the T positions
    share_optimal: Number  # share of the queries that select the token of largest score y<v, x>
    # first recorded step from which the selection is the final one; the last step if it still changed there
    settled_at_step: int
    # how often the token that decides the label has the largest attention; null if the source does not know that
    # token
    right: RightFields | None


class ClassifierFields(Fields):
    # its name: this layer, or the features of a logistic regression; 'the right token alone' is told the token
    # that decides the label
    classifier: str
    accuracies: list[Number]  # test accuracy for each seed
    mean_accuracy: Number  # mean of the accuracies
    # 95 % interval of the mean by Student's t, lower and upper end; null for a single seed, and if all seeds
    # agree
    mean_accuracy_interval: list[Number] | None
    # share of the test sequences whose token of largest attention decides the label, for each seed; null without
    # attention
    right_shares: list[Number] | None
    mean_right: Number  # mean of the right_shares; null without attention
    # 95 % interval of mean_right by Student's t; null for a single seed, if all seeds agree, and without
    # attention
    mean_right_interval: list[Number] | None


class ComparisonFields(Fields):
    seeds: list[int]  # seeds of the finished draws
    test_sequences: int = path("num_test")  # number of test sequences of each draw
    seconds: Number  # wall time of the comparison, which the seconds of the result include
    classifiers: list[ClassifierFields]  # one entry for each classifier


class SolutionFields(Fields):
    status: Status  # status of the solution: optimal, infeasible, or inaccurate
    separable: bool | None  # whether weights exist that select these tokens; null if the status is inaccurate
    # if infeasible: a lower bound of the norm of any separator of the unit rows; null if the bound is infinite
    # (another token equals the selected one), and if the problem is feasible
    farkas_bound: Number
    value: Number  # smallest norm; null if infeasible
    # largest margin of weights of norm 1, which is 1/value; null if infeasible or if there is nothing to separate
    margin: Number
    gap: Number  # relative duality gap; null if infeasible
    support_tokens: int | None  # number of support tokens
    support: Nested[int] | None  # support tokens: indices of sequence, query (if there is a query axis) and token


class TrainedSelectionFields(SolutionFields):
    trained_margin: Number  # smallest margin of the trained weights divided by their norm; null if no token is dropped
    # trained_margin divided by the largest possible margin, at most 1; null if no token is dropped or there is no
    # solution
    margin_ratio: Number
    locally_optimal: bool | None  # whether every support token scores below the selected one; null if infeasible


class OtherNormsFields(Fields):
    tokens: str  # what the Att-SVMs should select: optimal (tokens) or relevant (tokens, which decide the labels)
    norms: list[str] = path("found.norms")  # names of the norms; the first one is the default, Frobenius
    # share of the held-out queries whose token has the largest logit under the Att-SVM of each norm
    share: list[Number] = path("found.share")
    low: list[Number] = path("found.low")  # lower end of the 95 % interval of share
    high: list[Number] = path("found.high")  # upper end of the 95 % interval of share
    gain: list[Number] = path("found.gain")  # share minus that of the first norm
    # half of the 95 % interval of gain, for all norms together (Bonferroni)
    half_width: list[Number]
    better: int | None  # the place in norms of the largest share, if its gain exceeds half_width; null otherwise


class FitHypothesisFields(Fields):
    statement: str  # the hypothesis in a sentence
    holds: bool | None  # whether it holds; null if this was not decided


class TheoryFields(Fields):
    theorem: str  # its source, and what it is about
    conclusion: str  # what it says if its hypotheses hold
    hypotheses: list[FitHypothesisFields]  # its hypotheses, checked on the training sequences


class DirectionErrorFields(Fields):
    final: Number  # direction error (1 - cosine similarity) at the last record
    steps: list[int]  # number of updates made at each record after the start
    errors: list[Number]  # direction error at each of these records; null for zero weights


class FitHistoryFields(Fields):
    steps: list[int]  # number of updates made
    loss: list[Number]  # mean logistic loss on the training data
    train_accuracy: list[Number]  # accuracy on the training data
    largest_low: list[Number]  # 10 % quantile of the largest probabilities of the training queries
    largest_median: list[Number]  # median of the largest probabilities of the training queries
    largest_high: list[Number]  # 90 % quantile of the largest probabilities of the training queries
    norm: list[Number]  # Frobenius norm of W, or Euclidean norm of p
    changed: list[int]  # number of training queries whose selection differs from the final one
    test_accuracy: list[Number] | Missing  # accuracy on the test data; missing without test data
    # direction error to the Att-SVM of the trained selection; null for zero weights; missing if it is not
    # reported
    direction_error: list[Number] | Missing


class FitResult(CommandResult, schema="attsvm.fit/3"):
    seed: int  # seed of the split into training and test data, or of the first draw
    threads: int | None  # the limit set by --threads; null without one
    # how the training ended: finished, converged (early stopping), stalled, interrupted or non_finite
    status: Status = path("run.status")
    interrupted: bool  # whether Ctrl-C stopped the training or the comparison
    data: FitDataFields  # the data, before and after the split
    training: FitTrainingFields  # how the layer was trained, and how training ended
    accuracy: FitAccuracyFields  # shares of the unmasked queries whose output has the sign of the label
    report: FitReportFields  # how well each class is predicted, beside the share of the largest one
    saturation: FitSaturationFields  # the largest softmax probability of each training query
    selection: SelectionFields  # the tokens that the training queries select after the last step
    # the layer and other classifiers on the same sequences, for several draws of the source; null if the source
    # does not know the tokens that decide the labels, or no draw was finished
    comparison: ComparisonFields | None
    # Att-SVM of the optimal tokens, those of highest score under the head: the smallest weights that select them
    # with margin 1; null if the head was trained
    optimal_tokens: SolutionFields | None
    # Att-SVM of the tokens that the trained weights select: the smallest weights that select them with margin 1;
    # null if the head was trained
    att_svm: TrainedSelectionFields | None
    # Att-SVM of the tokens that decide the labels; null if the head was trained, or if the source does not know
    # them
    relevant_tokens: SolutionFields | None
    # Att-SVMs in several norms, compared by eight-fold cross-validation on the training sequences; null if the head
    # was trained, if the tokens to select are not known or have no Att-SVM, and for few and for many sequences
    other_norms: OtherNormsFields | None
    theory: TheoryFields | None  # the theorem that speaks of the run; null if no direction error is reported
    # distance of the direction of the trained weights from the Att-SVM of the trained selection; null if it is
    # not reported
    direction_error: DirectionErrorFields | None
    direction_error_missing: str | None  # why no direction error is reported; null if it is
    history: FitHistoryFields  # one entry for each recorded step
    seconds: Number  # wall time of everything except writing, in seconds
