"""The fields of the results of ``attsvm experiment``."""

from attsvm.pages.schemas.model import CommandResult, Fields, Missing, Number
from attsvm.results import Status


class ExperimentDataFields(Fields):
    source: str  # the source as in the command
    train: int  # number of training rows
    test: int | None  # number of test rows
    sha256: str  # hash of the data


class ExperimentModelFields(Fields):
    layers: int  # number of layers
    heads: int  # number of attention heads of a layer
    width: int  # dimension of a token
    hidden: int  # width of the hidden layer of a block
    dropout: Number  # dropout rate
    bias: bool  # whether keys, queries and values have biases
    parameters: int  # number of parameters


class BestFields(Fields):
    epoch: int  # number of the epoch
    test_accuracy: Number  # test accuracy after it
    test_loss: Number  # test loss after it


class WeightSizeFields(Fields):
    evenness: Number  # squared l1 norm divided by their number and their squared l2 norm: 1 if all are equal in size
    negligible: Number  # share of the weights below 1e-4
    largest: Number  # largest absolute value


class WeightsFields(Fields):
    key: WeightSizeFields  # sizes of the key weights of all layers
    query: WeightSizeFields  # sizes of the query weights of all layers
    value: WeightSizeFields  # sizes of the value weights of all layers


class EvennessFields(Fields):
    all: list[Number]  # over all queries, for each layer
    class_: list[Number]  # for the query of the class token, for each layer


class EpochFields(Fields):
    epoch: int  # number of the epoch
    step: int  # number of steps made
    seconds: Number  # wall time of training until then, in seconds
    test_loss: Number  # mean loss on the test rows
    test_accuracy: Number  # accuracy on the test rows
    weights: WeightsFields  # sizes of the weights
    # squared l1 norm of a row of attention divided by its length and its squared l2 norm, mean over heads and
    # inputs: small if attention is sparse
    attention_evenness: EvennessFields
    key_query_norm: list[Number]  # Frobenius norm of W_K W_Q', mean over heads, for each layer
    key_word_score: Number | Missing  # attention of the class token to the key words of the sentences
    key_word_scaled: Number | Missing  # attention to key words on the scale from 0 to 1 of each sentence
    train_loss: Number | Missing  # mean loss of the batches of the epoch
    train_accuracy: Number | Missing  # accuracy on the batches of the epoch


class SentenceFields(Fields):
    text: str  # the sentence
    label: int  # its label: 1 is positive, 0 negative
    probability: Number  # the model's probability of label 1
    pieces: list[list[bool | Number]]  # begin, end, attention, and whether it is a key word, of each token
    scaled: list[Number]  # attention of each piece on the scale from 0 to 1
    key_scaled: Number  # mean of scaled over the key words
    others_scaled: Number  # mean of scaled over the other words
    special: Number  # attention to special tokens


class KeyWordsFields(Fields):
    score: Number  # attention to the key words, mean over the sentences
    even: Number  # the score of equal attention to all tokens
    scaled: Number  # attention to key words on the scale from 0 to 1 of each sentence, mean over the sentences
    scaled_others: Number  # the same for the other words
    sentences: list[SentenceFields]  # one entry for each sentence


class PictureFields(Fields):
    row: int  # test row of the picture
    label: str  # its class
    predicted: str  # the predicted class
    attention: list[list[Number]]  # attention of the class token to each patch, in the last layer, mean over heads


class RecordedAttentionFields(Fields):
    shares: list[Number] | Missing  # attention of each piece of the sentence
    scaled: list[Number] | Missing  # the same on the scale from 0 to 1 of the sentence


class RecordFields(Fields):
    step: int  # number of steps
    # one entry for each sentence, or for each picture the attention to its patches
    attention: list[RecordedAttentionFields | list[list[Number]]]


class RunFields(Fields):
    optimizer: str  # name of the optimiser
    learning_rate: Number  # learning rate
    seed: int  # seed of the initial weights and of the batches
    status: Status  # how the run ended
    steps: int  # number of steps made
    seconds: Number  # wall time of training, in seconds
    best: BestFields | None  # the epoch of highest test accuracy; null before the first epoch
    history: list[EpochFields]  # one entry for each epoch; epoch 0 is the start
    # histograms of the absolute values of key, query and value weights: the share in each bin
    histograms: dict[str, list[Number]]
    edges: list[Number]  # edges of the bins
    # attention of the class token to the sentiment words of a few sentences; missing for pictures and for a run
    # that diverged
    key_words: KeyWordsFields | Missing
    # attention of the class token in the first test pictures; missing for texts and for a run that diverged
    pictures: list[PictureFields] | Missing
    # the shown attention after 0, 1, 2, 4, 8, … steps and at the end, rounded to four digits; empty for a run
    # that diverged
    over_steps: list[RecordFields]


class PublishedAccuracyFields(Fields):
    preset: str  # name of the preset
    optimizer: str  # name of the optimiser
    layers: int  # number of layers
    published: Number  # published test accuracy; null if there is none
    measured: list[Number]  # test accuracy at the best epoch of each seed
    error: Number  # standard error of the mean of measured; null if nothing was measured
    best_epochs: list[int]  # best epoch of each seed
    epochs: list[int]  # last epoch of each seed


class OrderFields(Fields):
    preset: str  # name of the preset
    layers: int  # number of layers
    scale: str  # how the preset differs from the published sizes; empty if it does not
    published: list[str]  # optimisers by published accuracy, the best first
    measured: list[str]  # optimisers by measured accuracy, the best first
    verdict: str  # holds, holds in part, does not hold, undecided, or not measured


class PublishedFields(Fields):
    accuracies: list[PublishedAccuracyFields]  # one entry for each preset and optimiser
    orders: list[OrderFields]  # one entry for each preset and number of layers


class ExperimentResult(CommandResult, schema="attsvm.experiment/1"):
    kind: str  # always experiment
    task: str  # imdb or cifar10
    preset: str  # name of the preset
    seed: int  # first seed of the runs
    threads: int | None  # the limit set by --threads; null without one
    device: str  # where the models were trained
    data: ExperimentDataFields  # the data
    model: ExperimentModelFields  # the transformer
    runs: list[RunFields]  # one entry for each optimiser and seed
    # measured beside published accuracies; null if nothing is published for the preset
    published: PublishedFields | None
