from .classifier import AttentionClassifier as AttentionClassifier
from .detector_classifier import DetectorClassifier as DetectorClassifier
from .margins import SLACK as SLACK
from .margins import MarginReport as MarginReport
from .prompt import effective_number as effective_number
from .prompt import forward as forward
from .settings import LEARNING_RATES as LEARNING_RATES
