"""The fields of the results of ``attsvm fit-text`` and ``attsvm next-token``."""

from attsvm.pages.class_report import ClassReportFields
from attsvm.pages.schemas.model import CommandResult, Fields, Missing, Number, path
from attsvm.results import Status


class TextsFields(Fields):
    source: str  # the source as in the command
    test_source: str | None  # the source of the test texts; null if they are a part of the source
    tokens: str = path("encoder.tokens")  # what the tokens are: word vectors, or states of a transformer
    sha256: str = path("train.texts.sha256")  # hash of the training texts and their labels
    test_sha256: str = path("test.texts.sha256")  # hash of the test texts and their labels
    classes: list[str] | None  # names of the labels
    train: int  # number of training texts
    test: int | None  # number of test texts
    vocabulary: int | None  # number of known words
    dim: int | None = path("test.sequences.dim")  # dimension of a token
    # number of training texts in which a known word occurs at least; null if it does not apply
    min_documents: int | None = path("encoder.min_documents")
    tokenizer: str | None = path("encoder.split_by")  # name of what splits texts into words; null for a transformer
    max_length: int = path("encoder.max_length")  # number of words of a text that are read at most
    train_cut: int  # number of training texts longer than max_length
    train_without_words: int  # number of training texts without a known word
    test_cut: int  # number of test texts longer than max_length
    test_without_words: int  # number of test texts without a known word


class TextTrainingFields(Fields):
    optimizer: str  # name of the optimiser
    learning_rate: Number  # learning rate
    alpha: Number  # strength of the penalty on the head and the prompt
    batch_size: int  # number of texts of a step
    max_steps: int  # number of steps at most
    p: Number | Missing  # exponent p of mirror descent; missing for other optimisers
    status: Status  # how training ended: converged or finished
    steps_done: int  # number of steps made
    kept_step: int  # step of the smallest validation loss, whose weights are kept


class BaselineFields(Fields):
    train: Number  # its accuracy on the training texts
    test: Number  # its accuracy on the test texts
    test_interval: tuple[float, float] | None  # 95 % Wilson interval, lower and upper end, of its test accuracy


class TextAccuracyFields(Fields):
    train: Number  # accuracy of the classifier on the training texts
    test: Number  # accuracy of the classifier on the test texts
    attention: BaselineFields  # attention alone
    ngrams: BaselineFields | None  # logistic regression on TF-IDF of words and pairs of words; null if not trained
    mean_token: BaselineFields  # logistic regression on the mean of the same vectors
    test_interval: tuple[float, float] | None  # 95 % Wilson interval, lower and upper end, of test


class LossesFields(Fields):
    attention: Number  # attention alone
    ngrams: Number  # n-grams alone
    both: Number  # both together


class PartsFields(Fields):
    parts: str  # which classify: attention, ngrams or both
    weights: tuple[float, float]  # of the outputs of attention and of n-grams
    reason: str  # why, in one sentence
    num_texts: int  # number of training texts that were held out to compare them
    losses: LossesFields | None  # mean log-loss on these texts; null if none were held out
    errors: LossesFields | None  # standard error of the difference between each loss and that of both; null like losses


class EffectiveWordsFields(Fields):
    measure: str  # how the number is defined
    mean: Number  # mean over the test texts
    low: Number  # 10 % quantile over the test texts
    median: Number  # median over the test texts
    high: Number  # 90 % quantile over the test texts
    median_length: Number  # median number of words that are read of a test text


class TextSaturationFields(Fields):
    median_largest_probability: Number  # median over the test texts
    share_above_threshold: Number  # share of the test texts at or above the threshold
    threshold: Number  # the attention counts as saturated if the median is at least this
    soft: bool  # whether the median is below the threshold


class WordFields(Fields):
    word: str  # the word
    documents: int  # number of test texts in which it occurs
    frequency: Number  # its share of the words of a text, mean over the test texts
    attention: Number  # its share of the attention in a text, mean over the test texts
    over_frequency: Number  # attention divided by frequency
    class_: str  # the label with the largest part of the word's attention, if all labels had as many texts
    class_share: Number  # that part
    over_frequency_interval: tuple[Number, Number]  # normal 95 % interval of over_frequency, lower and upper end


class WordsFields(Fields):
    listed: int  # number of words that occur in enough test texts to be listed
    listed_from: int  # number of test texts in which a listed word occurs at least
    most: list[WordFields]  # listed words whose interval lies above 1, by falling over_frequency
    least: list[WordFields]  # listed words whose interval lies below 1, by rising over_frequency
    # words whose interval lies above 1, by their class, and there by falling class_share
    by_class: dict[str, list[WordFields]]
    # attention divided by frequency of every listed word, by falling value
    over_frequency: dict[str, Number]


class MarginReportFields(Fields):
    texts: int = path("num_sequences")  # number of texts of the sample
    constraints: int = path("num_constraints")  # number of pairs of a text and a word that it does not select
    separable: bool | None  # whether a prompt exists that selects these words; null if undecided
    slack: Number  # the constant C of the soft-margin Att-SVM; null for the hard margin
    status: Status = path("solution.status")  # status of the solution
    gap: Number = path("solution.gap")  # relative duality gap of the solution
    correlation: Number  # cosine similarity of the trained prompt and the Att-SVM
    margin: Number  # smallest margin of the trained prompt divided by its norm
    margin_ratio: Number  # margin divided by the largest possible margin; null if not separable
    support_tokens: int | None  # number of support tokens


class TextHistoryFields(Fields):
    steps: list[int]  # number of steps made
    objective: list[Number]  # training loss with the penalty, mean since the last record
    validation_loss: list[Number] | Missing  # loss on the validation part of the training texts
    validation_accuracy: list[Number] | Missing  # accuracy on the validation part
    effective_low: list[Number]  # 10 % quantile of the effective number of words
    effective_median: list[Number]  # median of the effective number of words
    effective_high: list[Number]  # 90 % quantile of the effective number of words


class SecondsFields(Fields):
    words: Number  # of making tokens of the texts
    training: Number  # of training
    baselines: Number  # of the baseline
    margins: Number  # of the margin report
    everything: Number  # of everything except writing


class FitTextResult(CommandResult, schema="attsvm.fit-text/2"):
    seed: int  # seed of the split, of the word vectors and of training
    threads: int | None  # the limit set by --threads; null without one
    data: TextsFields  # the texts
    training: TextTrainingFields  # how attention was trained, and how training ended
    choice: PartsFields = path("classifier.choice_")  # which of attention and n-grams classify, and why
    accuracy: TextAccuracyFields  # shares of the texts that are classified correctly
    report: ClassReportFields  # how well each label of the test texts is predicted, beside the share of the largest one
    effective_words: EffectiveWordsFields  # effective number of words that the attention of a test text is spread over
    saturation: TextSaturationFields  # the largest attention of a word in each test text
    words: WordsFields  # attention that words receive over the test texts
    margin_report: MarginReportFields  # margins of the selected words in a sample of the training texts
    history: TextHistoryFields = path("classifier.attention_.history_")  # one entry for each record, every 25 steps
    seconds: SecondsFields  # wall time, in seconds


class CorpusFields(Fields):
    source: str  # as in the command
    sha256: str  # hash of the texts
    train: int  # texts
    test: int  # texts
    train_words: int  # words of the training texts
    vocabulary: int  # number of words, without the symbol of all others
    in_vocabulary: float  # share of the training words
    tokenizer: str = path("options.tokenizer.name")  # name of what splits texts into words
    length: int = path("options.length")  # of the longest context
    dim: int | None = path("options.dim")  # of learnt word vectors; null for orthonormal ones


class DescentFields(Fields):
    optimizer: str  # its name
    learning_rate: float  # step size
    steps: int  # of the optimiser
    contexts: int  # at most, of a last word


class ShareFields(Fields):
    share: Number  # null without contexts
    count: int  # contexts
    interval: tuple[float, float] | None  # Wilson, 95 %


class AgreementFields(Fields):
    prediction: ShareFields  # of the graph-SVM and the finite part
    recent: ShareFields  # of the most recent occurrence
    frequent: ShareFields  # of the most frequent word of the context
    bigram: ShareFields  # of the word of the context that followed the last word most often


class NextWordFields(AgreementFields):
    attention: ShareFields  # of trained attention


class HeldOutFields(Fields):
    contexts: int  # held-out contexts with a prediction, one of each text at most
    without_prediction: int  # held-out contexts of last words whose graph-SVM is infeasible
    label_absent: int  # contexts that do not contain their next word
    ordered: int  # contexts that the graph orders
    total_variation: Number  # mean distance of trained and predicted shares
    agreement: AgreementFields  # with the word that trained attention selects
    agreement_in_vocabulary: AgreementFields  # the same where that word is in the vocabulary
    next_word: NextWordFields  # the selected word is the next one, of contexts that contain it


class LastWordFields(Fields):
    word: str  # the last word
    contexts: int = path("graph.num_contexts")  # training contexts
    label_absent: int = path("graph.num_dropped")  # of them without their next word
    edges: int  # of its graph
    components: int  # of its graph
    largest_component: int  # words
    status: str = path("solution.status")  # of the graph-SVM
    gap: Number = path("solution.gap")  # its relative duality gap
    value: Number = path("solution.value")  # its norm
    finite_status: str = path("finite.status")  # of the finite part
    finite_norm: float  # Frobenius norm of the finite part
    loss: float  # of trained attention
    least_loss: float = path("finite.loss")  # its infimum
    held_out: HeldOutFields  # contexts of this last word


class GraphSecondsFields(Fields):
    reading: float  # splitting the texts into words
    everything: float  # of the computation


class NextTokenResult(CommandResult, schema="attsvm.next-token/1"):
    seed: int = path("options.seed")  # of the split and of the contexts
    threads: int | None  # the limit set by --threads, or null
    data: CorpusFields  # the texts
    training: DescentFields  # how attention was trained
    held_out: HeldOutFields  # contexts of all last words together
    last_words: list[LastWordFields]  # one entry for each last word
    seconds: GraphSecondsFields  # wall time of parts
