"""The distribution of the next comparison, and whether predictions come true."""

from ._calibration import Calibration as Calibration
from ._calibration import calibration as calibration
from ._predict import Prediction as Prediction
from ._predict import predict as predict
