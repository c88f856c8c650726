"""The fields of the results of ``attsvm fit`` on bags: tables, and arrays of more than two classes."""

from attsvm.pages.class_report import ClassReportFields
from attsvm.pages.schemas.model import CommandResult, Fields, Missing, Number
from attsvm.results import Status


class BagDataFields(Fields):
    source: str  # as in the command
    test_source: str | None  # the test file; null if test bags are a part of the source
    bag: str  # what a bag is called: the column that names the bags
    columns: list[str] | None  # names of the entries of a token; null if they have none
    classes: list[str]  # names of the classes
    train: int  # number of training bags
    test: int  # number of test bags
    tokens: int  # number of tokens of all bags
    dim: int  # number of entries of a token, after words are encoded
    test_fraction: Number  # share of each class that is set apart; null with a test file
    groups: bool  # whether bags of one group stay together
    fill_: str | Missing  # mean or median of a column, which fills its missing numbers; missing if none are filled


class MemberFields(Fields):
    name: str  # name of the pooled features of the ridge regression
    share: Number  # root mean square of its part in the outputs for left-out bags, over the sum of those of all members


class BagTrainingFields(Fields):
    optimizer: str  # name of the optimiser
    learning_rate: Number  # learning rate
    alpha: Number  # strength of the penalty
    batch_size: int  # number of bags of a step
    max_steps: int  # number of steps at most
    scale: str  # columns, or common
    ensemble: bool  # whether ridge regressions on pooled features classify together with the attention
    members: list[MemberFields]  # these regressions; empty if there are none
    status: Status  # how training ended
    steps_done: int  # number of steps made
    kept_step: int  # step whose parameters are kept


class BagAccuracyFields(Fields):
    train: Number  # accuracy on the training bags
    test: Number  # accuracy on the test bags; null without test bags
    test_interval: tuple[float, float] | None  # 95 % Wilson interval, lower and upper end, of test


class ReportsFields(Fields):
    train: ClassReportFields  # training bags
    test: ClassReportFields | None  # test bags; null without them


class BagAttentionFields(Fields):
    effective_low: Number  # 10 % quantile over the bags of the effective number of tokens, exp(-sum a log a)
    effective_median: Number  # median
    effective_high: Number  # 90 % quantile
    median_length: Number  # median number of tokens of a bag
    median_share: Number  # median over the bags of the largest share of a token


class BagHistoryFields(Fields):
    steps: list[int]  # number of steps made
    objective: list[Number]  # training loss with the penalty, mean since the last record
    validation_loss: list[Number] | Missing  # loss on the validation part of the training bags
    validation_accuracy: list[Number] | Missing  # accuracy on the validation part
    effective_low: list[Number] | Missing  # 10 % quantile of the effective number of tokens
    effective_median: list[Number] | Missing  # median of the effective number of tokens
    effective_high: list[Number] | Missing  # 90 % quantile of the effective number of tokens


class FitBagsResult(CommandResult, schema="attsvm.fit-bags/1"):
    seed: int  # seed of the split and of training
    threads: int | None  # the limit set by --threads; null without one
    data: BagDataFields  # the bags
    training: BagTrainingFields  # how the classifier was trained, and how training ended
    accuracy: BagAccuracyFields  # shares of the bags that are classified correctly
    report: ReportsFields  # how well each class is predicted, beside the share of the largest one
    # of the test bags, or without these of the training bags; of an ensemble that of attention alone
    attention: BagAttentionFields
    history: BagHistoryFields  # one entry for each record
    seconds: Number  # wall time of everything except writing
