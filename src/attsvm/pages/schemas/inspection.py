"""The fields of the results of ``attsvm inspect``, ``compare`` and ``monitor``."""

from attsvm.pages.schemas.model import CommandResult, Fields, Missing, Nested, Number, path
from attsvm.results import Status


class SourceFields(Fields):
    model: str  # the model as in the command: a folder or a name
    text: str | None  # the file of texts; null for pictures and sounds
    images: str | None  # the folder of pictures; null for texts and sounds
    sounds: str | None  # the folder of sounds; null for texts and pictures
    target: str | None  # the file of texts of the decoder; null without --target


class InspectedModelFields(Fields):
    class_: str = path("model")  # name of its class
    family: str  # name of its family
    layers: list[str] = path("layer_names")  # names of the attention layers
    rotary: bool  # whether W is I/sqrt(d_h) over rotated keys and queries
    not_run: list[str]  # names of the attention layers that the input does not run, which are left out
    biased: bool  # whether the logits have biases, of positions or of positions and tokens, as a part of W


class InputFields(Fields):
    sequences: int = path("num_sequences")  # number of sequences
    tokens: int = path("num_tokens")  # number of tokens over all sequences
    queries: int | None = path("num_queries")  # number of queries over all sequences
    sampled: bool  # whether only a sample of the queries is used


class LayerGroupFields(Fields):
    layers: list[int]  # numbers of the layers, from 0
    sequences: int = path("num_sequences")  # number of sequences that they see, as windows or pictures
    tokens: int = path("num_tokens")  # number of tokens over all of these sequences
    queries: int = path("num_queries")  # number of queries over all of these sequences
    positions: Nested[int]  # position of each query in its sequence; -1 for none


class ModelInputFields(InputFields):
    special_known: bool  # whether special tokens are known


class HeadFields(Fields):
    layer: int  # number of the layer, from 0
    head: int  # number of the head, from 0
    largest_probability: Number  # mean of the largest probability of a query; null if no query may attend to two tokens
    effective_tokens: Number  # mean of the exponential of the attention's entropy
    special_share: Number  # mean attention to special tokens; null if they are not known
    first_share: Number  # mean attention to the first token of the sequence
    own_share: Number  # mean attention to the query's own position
    previous_share: Number  # mean attention to the token before the query, over the queries that have one
    # mean attention to earlier occurrences of the query's token, over the queries that have one
    duplicate_share: Number
    # mean attention to the tokens after earlier occurrences of the query's token, over the queries that have one
    induction_share: Number
    # smallest change of a query that alters its selection, in the Euclidean norm, divided by the norm of the query;
    # mean over queries
    query_robustness: Number | Missing
    # the same for the token that a key is made from; null if W is not known, or queries and keys have norms
    key_robustness: Number | Missing
    effective_rank: Number  # exponential of the entropy of W's singular values divided by their sum
    # largest difference between the attention of the model and the one computed from tokens and W; null if the model's
    # own was not there to compare with
    rebuilt_error: Number
    # lower and upper bound of the margin of W divided by the best margin with the same Frobenius norm and
    # selection; null if there is none
    margin_ratio: list[Number] | Missing | None
    # optimal: the interval is as narrow as required, or there are no constraints; inaccurate: it is wider;
    # infeasible: no matrix makes this selection; interrupted: it is not solved
    status: Status | Missing
    margin: Number | Missing  # smallest margin of W divided by its Frobenius norm
    norm: Number | Missing  # Frobenius norm of W
    constraints: int | Missing  # number of pairs of a query and a token that it does not select
    # number of them that are left out because the token is an exact duplicate of the selected one
    duplicates: int | Missing
    support: int | Missing | None  # number of support tokens: constraints with positive weight in the dual solution
    steps: int | Missing  # number of steps of the solver


class CheckpointFields(Fields):
    step: int  # training step of the checkpoint
    heads: list[HeadFields]  # one entry for each inspected head


class ChangeFields(Fields):
    sequence: int  # sequence of the query whose selection changes, from 0
    query: int  # that query, from 0
    token: int  # the token that it selects then, from 0
    norm: Number  # Frobenius norm of the change
    relative: Number  # that norm divided by the norm of W


class ReasonsFields(Fields):
    # sequence, query and dropped token of each constraint with a positive multiplier, the largest share first
    triples: list[list[int]]
    # multiplier of each triple divided by the sum of all: its part of the squared norm of the Att-SVM
    shares: list[Number]
    cosine: Number  # cosine similarity of W and the Att-SVM
    # share of the k triples among the k rows with the smallest distances of W (margin divided by the norm of the
    # row)
    overlap: Number
    chance: Number  # k divided by the number of rows: the overlap to expect by chance
    change: ChangeFields  # smallest change of W that alters a selection


class FactorChangeFields(Fields):
    lower: Number  # no change of smaller Frobenius norm alters a selection
    upper: Number  # Frobenius norm of a change that does
    relative: Number  # upper divided by the norm of both weights
    sequence: int  # sequence of the query whose selection changes, from 0
    query: int  # that query, among the inspected ones of the sequence, from 0
    token: int  # the token that it selects then, from 0


class TermsFields(Fields):
    constant_query: Number  # of the mean query with what varies among the keys
    interaction: Number  # of what varies among the queries with what varies among the keys
    constant_key: Number  # of what varies among the queries with the mean key; 0 without rotary positions
    constants: Number  # of the mean query with the mean key; 0 without rotary positions
    biases: Number  # of biases that the layer adds to its logits; 0 without any


class PairFields(Fields):
    query: str  # group of origins of the queries; biases of the logits are a group of both
    key: str  # group of origins of the keys
    share: Number  # share of the decision margin, signed; those of all pairs add up to 1


class OriginsFields(Fields):
    margin: Number  # mean over the queries of the logit of the selected token minus that of the runner-up
    error: Number  # largest difference between the sum of all parts and the logits
    terms: TermsFields  # share of the margin by what varies; the means over all queries and over all keys are constant
    # origins of each group: "constant" is a group, earlier heads of one named set are one, every other origin is
    # its own
    groups: dict[str, list[str]]
    pairs: list[PairFields]  # at most 40 pairs of groups, those with the largest shares in absolute value first


class DirectionFields(Fields):
    value: Number  # singular value
    share: Number  # its square divided by the sum of all squares
    # sequence and place of the queries with the largest and with the smallest coordinates
    query_ends: list[list[list[int]]]
    key_ends: list[list[list[int]]]  # sequence and place of the keys with the largest and with the smallest coordinates
    # tokens of the vocabulary whose embeddings have the largest and the smallest coordinates on the side of the
    # keys; null without a table of embeddings
    vocabulary_ends: list[list[int]] | None


class CausalTestFields(Fields):
    query: str  # origin of the queries
    key: str  # origin of the keys
    share: Number  # share of the decision margin
    score: Number  # mean attention to the decided tokens; null without a test, as the values below
    # the same in each draw of random tokens, with all origins of queries and keys from random tokens
    resampled: list[Number] | None
    alone: list[Number] | None  # the same with all origins but those of the reason from random tokens
    # the same with the origins of the queries from random tokens; null entries if they are constant
    without_query: list[Number] | None
    # the same with the origins of the keys from random tokens; null entries if they are constant
    without_key: list[Number] | None
    # effect that is left of everything with alone: mean over the draws, lower and upper end of its 99 % interval
    sufficiency: list[Number] | None
    # effect that is lost with without_query or without_key, whichever is smaller: mean over the draws, lower and upper
    # end of its 99 % interval
    necessity: list[Number] | None
    control_sufficiency: Nested[Number] | None  # sufficiency of each control in each draw
    control_necessity: Nested[Number] | None  # necessity of each control in each draw
    # passed: both intervals are above 0.5, and those of the differences to every control above 0; failed: one of both
    # is below 0.5, or exceeded by at least half of the controls; undecided: neither
    verdict: str | None
    untested: str  # why there is no test; empty if there is one


class ViewFields(Fields):
    layer: int  # number of the layer, from 0
    head: int  # number of the head, from 0
    frobenius_norm: Number = path("norm")  # Frobenius norm of W
    nuclear_norm: Number  # nuclear norm of W
    spectral_norm: Number  # spectral norm of W
    singular_values: list[Number]  # singular values of W, the largest first
    # lower and upper bound of the margin of W divided by the best margin with the same Frobenius norm and
    # selection; null if there is none; solved to 1e-4, or to --gap if that is smaller
    margin_ratio: list[Number] | None
    # optimal: the interval is as narrow as required, or there are no constraints; inaccurate: it is wider;
    # infeasible: no matrix makes this selection
    status: Status
    support: list[list[int]] | None  # support tokens: sequence, query and token of each; null if there is no Att-SVM
    # the constraints that determine the Att-SVM of the selection; null if there is no Att-SVM
    reasons: ReasonsFields | None
    # smallest change of the key and query weights together that alters a selection; null with rotary positions,
    # norms of queries and keys, or biases of logits
    factor_change: FactorChangeFields | None
    # the decision margin split by origin in the residual stream; null if the family does not describe its stream
    origins: OriginsFields | None
    # pairs of singular directions of W with the largest singular values; with rotary positions of W before the
    # rotation, or of the coordinates without rotation
    directions: list[DirectionFields]
    tests: list[CausalTestFields]  # causal tests of the largest parts of the decision margin on the text of --held-out


class HeadEffectFields(Fields):
    layer: int  # number of the layer, from 0
    head: int  # number of the head, from 0
    pattern: str  # the kind of token with at least half of its attention, such as "previous token"; or empty
    selected: int  # without a pattern the token of the vocabulary that most queries select; -1 if it is not known
    selected_share: Number  # attention to the tokens of the pattern, or share of the queries that select this token
    norm: Number  # mean norm of what it adds to the residual stream
    share: Number  # mean of that norm divided by the norm of the stream; null if it is not known
    attribution: Number  # mean of what it adds directly to the logit of the target, minus the mean over the vocabulary
    written: list[int]  # tokens of the vocabulary whose logits it raises most in this way; -1 without attribution
    mean_cost: Number  # increase of the measure with its mean output
    costs: list[Number]  # increase of the measure with outputs of random places, for each draw
    cost: list[Number]  # mean of the costs, lower and upper end of its 95 % interval


class EffectsFields(Fields):
    measure: str  # what removing a head changes: the loss, or the mean relative change of the last hidden state
    unattributed: str  # why no logits are attributed; empty if they are
    heads: list[HeadEffectFields]  # one entry for each head


class InspectResult(CommandResult, schema="attsvm.inspect/2"):
    seed: int  # seed of the sample of queries and of the twin
    threads: int | None  # the limit set by --threads; null without one
    seconds: Number  # wall time of everything except writing, in seconds
    # whether margins, the twin or checkpoints are missing: the command was interrupted, or is still running
    interrupted: bool
    source: SourceFields  # what was inspected, as given
    model: InspectedModelFields  # the model
    data: ModelInputFields  # the inputs
    gap: Number  # requested relative width of the margin intervals
    rebuilt_error: Number  # largest rebuilt_error of a head
    heads: list[HeadFields]  # one entry for each inspected head
    # named sets of heads that give at least half of their attention to one kind of token
    sets: dict[str, list[str]]
    # by layer.head: the token of largest probability, for each of queries; null if they are left out
    selected: dict[str, Nested[int]] | None
    queries: Nested[int] = path("positions")  # position of each query in its sequence; -1 for none; of the first group
    groups: list[LayerGroupFields]  # the inspected layers by what they see; several for towers and windows
    twin_gap: Number  # requested relative width of the twin's intervals: 0.1, or a wider --gap; null without a twin
    twin: list[HeadFields] | None  # the same for a copy of the model with random weights; null without it
    checkpoints: list[CheckpointFields]  # the heads of each checkpoint
    view: ViewFields | None  # one head in detail: the first of --head; null without it
    effects: EffectsFields | None  # what the heads write and what removing them costs; null without --effects


class ModelsSourceFields(Fields):
    models: list[str]  # the models in the order in which they are compared
    text: str | None  # the file of texts; null for pictures
    images: str | None  # the folder of pictures; null for texts


class ComparedModelFields(Fields):
    name: str  # folder or name of the model
    step: int | None  # training step of the checkpoint; null if the models are no checkpoints of one training
    class_: str = path("model")  # name of the model's class
    family: str  # name of the model's family
    rebuilt_error: Number  # largest rebuilt_error of a head of this model
    heads: list[HeadFields]  # one entry for each inspected head


class WeightChangeFields(Fields):
    product: Number  # of W
    key: Number  # of the key weights with their bias
    query: Number  # of the query weights with their bias


class HeadChangeFields(Fields):
    layer: int  # number of the layer, from 0
    head: int  # number of the head in its layer, from 0
    changed: float  # share of the queries that select another token in the last model than in the first
    # this share in each model after the first, compared with the first; null if the model lacks the head
    since_first: list[Number]
    # this share in each model after the first, compared with the model before it; null if one of the two lacks
    # the head
    since_previous: list[Number]
    # whether the intervals of margin_ratio in the first and the last model are disjoint; null if one is missing
    margin_moved: bool | None
    # how far the weights moved, as Frobenius norms of the changes divided by those before; 0 if only the input of
    # the head differs; null if the sizes differ
    weights: WeightChangeFields | Missing | None
    queries: list[list[int]]  # sequence and number of each query whose selection changed, from 0
    before: list[int]  # the token that each of these queries selects in the first model
    after: list[int]  # the token that each of these queries selects in the last model


class CompareResult(CommandResult, schema="attsvm.compare/1"):
    seed: int  # seed of the sample of queries
    threads: int | None  # the limit set by --threads; null without one
    seconds: Number  # wall time of everything except writing, in seconds
    source: ModelsSourceFields  # what was compared, as given
    data: InputFields  # the inputs, which are the same for all models
    gap: Number  # requested relative width of the margin intervals
    models: list[ComparedModelFields]  # one entry for each model, in order
    # one entry for each head of both the first and the last model, those with most changed selections first
    changes: list[HeadChangeFields]


class MonitorResult(CommandResult, schema="attsvm.monitor/1"):
    source: str | None  # the file or folder of the record; null for a page of a monitor in Python
    steps: list[int]  # the step of each record, ascending
    heads: list[str]  # the heads, as layer.head
    # by the name of the measure: a row for each record with a value for each head; null where it was not recorded
    measures: dict[str, list[list[Number]]] = path("values")
