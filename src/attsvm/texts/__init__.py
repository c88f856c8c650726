"""Classification of texts: attention over word vectors or states of a transformer, combined with n-grams.

``classifier`` is the estimator. ``tokenizers`` split texts into words; ``words`` learns a vector for each word, and
``states`` takes the hidden states of a transformer; ``encoding`` holds texts as sequences of either. ``ngrams`` is a
linear model of words and pairs of words. ``parts`` trains attention and n-grams, and ``combination`` chooses which of
them classify.
``contributions`` divides an output among words and n-grams, and ``report`` compares the parts.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "EncodedTexts",
    "Encoder",
    "MAX_LENGTH",
    "Tokenizer",
    "WORDS",
    "encode",
    "find_tokenizer",
    "load_states",
    "neighbour_vectors",
    "split_words",
    "warn_of_unspaced",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
