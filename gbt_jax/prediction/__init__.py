"""The distribution of the next comparison, and the calibration of predictions."""

from ._calibration import Calibration as Calibration
from ._calibration import calibration as calibration
from ._predict import Prediction as Prediction
from ._predict import predict as predict
